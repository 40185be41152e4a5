package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/undolog/undolog/store/postgres"
)

// metricsType is Prometheus' text format.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// The kinds of a metric.
const (
	gauge   = "gauge"
	counter = "counter"
)

// metric is one value. Those of one name follow each other.
type metric struct {
	name, help, kind string
	label, of        string // one label and its value; none when empty
	value            float64
}

// writeMetrics writes Prometheus' text format. A reader that has gone gets no more.
func writeMetrics(w io.Writer, metrics []metric) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	last := ""
	for _, m := range metrics {
		if m.name != last {
			fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
			last = m.name
		}
		label := ""
		if m.label != "" {
			label = fmt.Sprintf("{%s=%s}", m.label, quoteLabel(m.of))
		}
		fmt.Fprintf(out, "%s%s %s\n", m.name, label, strconv.FormatFloat(m.value, 'g', -1, 64))
	}
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func quoteLabel(s string) string { return `"` + labelEscapes.Replace(s) + `"` }

func programMetric() metric {
	return metric{name: "undolog_build_info", help: "The program.", kind: gauge, label: "version", of: programVersion(), value: 1}
}

// metrics are what the log's backend counts.
func (l *openedLog) metrics() []metric {
	if d, ok := l.backend.(*postgres.Driver); ok {
		return poolMetrics(d.Stats())
	}
	return fileMetrics(string(l.place))
}

func poolMetrics(s postgres.Stats) []metric {
	const conns, connsHelp = "undolog_pool_connections", "Connections to PostgreSQL, by what they do."
	return []metric{
		{name: conns, help: connsHelp, kind: gauge, label: "state", of: "idle", value: float64(s.IdleConns)},
		{name: conns, help: connsHelp, kind: gauge, label: "state", of: "used", value: float64(s.UsedConns)},
		{name: conns, help: connsHelp, kind: gauge, label: "state", of: "beginning", value: float64(s.TotalConns - s.IdleConns - s.UsedConns)},
		{name: "undolog_pool_connections_max", help: "How many there may be (pool_max_conns).", kind: gauge, value: float64(s.MaxConns)},
		{name: "undolog_pool_acquired_total", help: "Connections taken from the pool.", kind: counter, value: float64(s.Acquired)},
		{name: "undolog_pool_wait_seconds_total", help: "Time waited for a connection of the pool.", kind: counter, value: s.AcquireWait.Seconds()},
		{name: "undolog_write_groups_total", help: "Transactions that grouped the writes of many callers.", kind: counter, value: float64(s.Groups)},
		{name: "undolog_grouped_writes_total", help: "Writes in such transactions.", kind: counter, value: float64(s.Grouped)},
		{name: "undolog_waiters_told_total", help: "Moves of effects that waiters, here or elsewhere, were told of.", kind: counter, value: float64(s.Told)},
		{name: "undolog_moves_heard_total", help: "Notifications of moved effects that came while somebody here waited, of whatever effects.", kind: counter, value: float64(s.Heard)},
	}
}

// fileMetrics are the sizes of the files that are there.
func fileMetrics(path string) []metric {
	var sizes []metric
	for _, file := range []struct{ name, path string }{{"database", path}, {"wal", path + "-wal"}} {
		if info, err := os.Stat(file.path); err == nil {
			sizes = append(sizes, metric{
				name: "undolog_file_bytes", help: "Size of the log's files.", kind: gauge, label: "file", of: file.name, value: float64(info.Size()),
			})
		}
	}
	return sizes
}
