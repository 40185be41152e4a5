// Package webhook tells an HTTP endpoint of what comes to wait for people in an effect log, and of what they
// decide: approval.requested, approval.reminder, approval.decided, approval.expired and effect.in_doubt.
//
//	t, err := webhook.New(log, &webhook.Options{URL: "https://chat.example/hook", Secret: secret})
//	err = t.Run(ctx)
//
// Each message is signed as Standard Webhooks has it (webhook-id, webhook-timestamp, webhook-signature) and sent
// until the endpoint takes it. What was sent is noted in the log, so that any process that tells of the same log
// goes on where another has ended: a message is sent at least once, and under the same webhook-id if it is sent
// again. Messages hold no arguments and no results: they say where to look. No call waits for them.
package webhook
