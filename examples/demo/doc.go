// Command demo shows on the terminal what UndoLog does about calls that are sent twice. It plays an
// agent, or several, in front of "undolog gateway" and the payments server of examples/payments:
//
//	make demo
//
// Each step says what it does, shows what goes over the wire, and then counts at the target, in the file
// where the payments server writes down every charge. The program exits with status 1 when a count is not
// what was promised. Read steps.go first.
package main
