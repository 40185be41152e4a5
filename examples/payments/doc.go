// Payments is an MCP server to try things on: tools that move money, send mail and flip a switch, each
// writing its effect to a file ledger before it answers, with faults that can be switched on while it
// runs.
//
//	payments --ledger FILE [--faults FILE] [--fault TOOL=RULE] [--honour-keys] [--http ADDR]
//
// It serves stdio, or with --http one Streamable HTTP endpoint for both protocol generations, whose URL
// is the first line on standard output. Tools that change something:
//
//	charge         irreversible, returns the charge that refund takes
//	refund         takes back a charge
//	ask_refund     the same, after asking the person at the client
//	send_receipt   irreversible
//	append_note    repeats are meant
//	toggle         no arguments; each call flips the switch
//	set_limit      idempotent
//
// get_charge and list_charges read.
//
// A RULE is a JSON object of package faults, such as {"after":"kill","times":1}: the server dies after
// the effect and before its answer, once.
package main
