// Package chainfile reads the file that names other people's interceptor hosts, and puts them on a chain:
//
//	version: 1
//	hosts:
//	  - name: pii
//	    url: https://pii.example.com/mcp
//	    headers: {Authorization: "env:PII_TOKEN"}
//	    interceptors:
//	      redact: {required: mutation, timeout: 2s, config: {fields: [ssn]}}
//	      greet:  {disabled: true}
//	  - name: lint
//	    command: [npx, -y, "@acme/lint-host"]
//	    side: upstream
//
// A required interceptor blocks what it would judge for as long as its host is gone, from the start on.
// Secrets are named by environment variables and never written here.
package chainfile
