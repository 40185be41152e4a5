// Package faults marks the edges of a call's way at which crash tests stop the process. The marks cost
// nothing in a normal build; a build with the tag faults dies at the edge that UNDOLOG_FAULT names, or stops
// there.
package faults
