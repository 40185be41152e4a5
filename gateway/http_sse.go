package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// event is one server-sent event.
type event struct {
	name  string
	id    string
	data  []byte
	size  int64         // of data on the wire, also when it was cut
	cut   bool          // data was above the limit: only its first bytes are kept
	retry time.Duration // the delay that the server asks for before a reconnect; zero: none
}

// cutKept is how much of an event above the limit is kept: enough to find the method in.
const cutKept = 64 << 10

// eventReader reads a text/event-stream. An event above max is read to its end without being kept, so
// that memory is bounded and the stream goes on behind it.
type eventReader struct {
	r   *bufio.Reader
	max int64
}

func newEventReader(r io.Reader, max int64) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// next returns the next event that carries data or an id. An event which the stream's end cuts off is
// dropped, as the HTML standard asks.
func (er *eventReader) next() (*event, error) {
	ev := &event{}
	for {
		blank, err := er.line(ev)
		if err != nil {
			return nil, err
		}
		if !blank {
			continue
		}
		if len(ev.data) > 0 || ev.id != "" || ev.retry > 0 {
			return ev, nil
		}
		ev = &event{}
	}
}

// line reads one line into ev and reports whether it was the blank one that ends an event.
func (er *eventReader) line(ev *event) (blank bool, err error) {
	head, err := er.r.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return false, err
	}
	more := err != nil
	if !more {
		head = trimNewline(head)
	}
	if len(head) == 0 {
		return true, nil
	}
	name, value, _ := bytes.Cut(head, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		return false, er.data(ev, value, more)
	case "event":
		ev.name = string(value)
	case "id":
		ev.id = string(value)
	case "retry":
		if ms, err := strconv.ParseInt(string(value), 10, 64); err == nil && ms > 0 {
			ev.retry = time.Duration(ms) * time.Millisecond
		}
	}
	if more {
		return false, er.skipLine()
	}
	return false, nil
}

// data adds a data line to ev; more says that the line goes on in the reader.
func (er *eventReader) data(ev *event, part []byte, more bool) error {
	if ev.size > 0 {
		er.keep(ev, []byte("\n"))
	}
	er.keep(ev, part)
	for more {
		next, err := er.r.ReadSlice('\n')
		more = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !more {
			return err
		}
		if !more {
			next = trimNewline(next)
		}
		er.keep(ev, next)
	}
	return nil
}

func (er *eventReader) keep(ev *event, part []byte) {
	ev.size += int64(len(part))
	if ev.cut {
		return
	}
	ev.data = append(ev.data, part...)
	if er.max > 0 && ev.size > er.max {
		ev.cut = true
		ev.data = bytes.Clone(ev.data[:min(len(ev.data), cutKept)])
	}
}

func (er *eventReader) skipLine() error {
	for {
		_, err := er.r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func trimNewline(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
