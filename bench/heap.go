package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
)

// heap makes many different calls through a chain with our interceptors and a log on SQLite, and looks
// what is kept of them in memory.
func (b *bench) heap(ctx context.Context) error {
	log, err := b.openLog(ctx, "heap.db")
	if err != nil {
		return err
	}
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true})
	c, err := effectchain.New(ei, &effectchain.Options{Server: "payments"})
	if err != nil {
		return err
	}
	made := 0
	var first float64
	for _, percent := range []int{10, 50, 100} {
		until := b.heapCalls * percent / 100
		err := share(until-made, 64, func(i int) error { return throughChain(ctx, c, made+i) })
		if err != nil {
			return err
		}
		made = until
		heap := heapAfterGC()
		if first == 0 {
			first = heap
		}
		b.reportHeap(percent, made, heap, first)
	}
	return errors.Join(c.Drain(ctx), log.Close())
}

func (b *bench) reportHeap(percent, calls int, heap, first float64) {
	r := row{
		what:     fmt.Sprintf("heap after garbage collection, %d calls", calls),
		figure:   fmt.Sprintf("%.1f MB (%s resident)", heap, resident()),
		baseline: fmt.Sprintf("%.1f MB at 10 %%", first), ratio: heap / first,
	}
	if percent == 100 {
		r.goal = goal("flat, ≤ 1.1 ×", r.ratio <= 1.1)
	}
	b.table.add(r)
}

func throughChain(ctx context.Context, c *chain.Chain, i int) error {
	reply := c.Do(ctx, toolCall(i), func(context.Context, json.RawMessage) chain.Answer {
		return chain.Answer{Kind: chain.Answered, Result: answer}
	})
	reply.Delivered(true)
	if reply.Error != nil {
		return fmt.Errorf("call through chain: %s", reply.Error)
	}
	return nil
}

// heapAfterGC is what is still in use, in MB.
func heapAfterGC() float64 {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// resident is what the system counts as in memory; it holds garbage that was not yet collected.
func resident() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range bytes.Lines(status) {
		var kb int
		if n, _ := fmt.Sscanf(string(line), "VmRSS: %d kB", &kb); n == 1 {
			return fmt.Sprintf("%.0f MB", float64(kb)/1e3)
		}
	}
	return "unknown"
}
