// Command bench prints one table of what UndoLog costs. Every figure stands beside a baseline that was
// measured in the same run, by turns with it, because machines and disks differ and change from minute to
// minute: read the ratios.
//
//	make bench
//	go run ./bench -bin bin -duration 20s -heap-calls 1000000
//
// A goal that was not reached is printed as missed.
package main
