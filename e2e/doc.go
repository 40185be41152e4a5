// Package e2e holds the tests that run the programs as people run them: the real gateway in front of
// the real payments server, with the agent's end in the test. Effects are counted in the payments
// ledger, never in the log.
package e2e
