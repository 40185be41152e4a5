package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/undolog/undolog/gateway"
)

func lines(t *testing.T, text string, l *gateway.Limits) gateway.Conn {
	t.Helper()
	c := gateway.NewLineConn(io.NopCloser(strings.NewReader(text)), nopWriter{io.Discard}, &gateway.LineOptions{Limits: l})
	t.Cleanup(func() { c.Close() })
	return c
}

type nopWriter struct{ io.Writer }

func (nopWriter) Close() error { return nil }

func TestLineConn_Read(t *testing.T) {
	t.Run("a line above the limit comes with its id and method alone", func(t *testing.T) {
		big := `{"jsonrpc":"2.0","params":{"a":"` + strings.Repeat("x", 300_000) + `"},"id":"big","method":"tools/call"}`
		c := lines(t, big+"\n"+`{"jsonrpc":"2.0","id":2,"method":"ping"}`+"\n", &gateway.Limits{MaxBytes: 100_000})
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !m.Truncated || string(m.ID) != `"big"` || m.Method != "tools/call" || m.Size < 300_000 || m.Raw != nil {
			t.Errorf("Read = %+v", m)
		}
		if m, err = c.Read(t.Context()); err != nil || m.Method != "ping" {
			t.Errorf("the next Read = %+v, %v", m, err)
		}
		if _, err = c.Read(t.Context()); err != io.EOF {
			t.Errorf("at the end Read = %v", err)
		}
	})
	t.Run("quotes and backslashes hide nothing, wherever the buffer ends", func(t *testing.T) {
		for pad := range 9 {
			hidden := strings.Repeat("x", pad) + strings.Repeat(`\\\"id\":1,`, 20_000)
			c := lines(t, `{"p":"`+hidden+`","jsonrpc":"2.0","method":"m\u0061","i\u0064":"a\"b"}`+"\n", &gateway.Limits{MaxBytes: 1000})
			m, err := c.Read(t.Context())
			if err != nil || string(m.ID) != `"a\"b"` || m.Method != "ma" {
				t.Fatalf("Read = %+v, %v", m, err)
			}
		}
	})
	t.Run("a batch comes one by one, and a bad member of it is refused alone", func(t *testing.T) {
		c := lines(t, `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2},{"jsonrpc":"2.0","id":3,"method":"c"}]`+"\n", nil)
		var got []string
		for {
			m, err := c.Read(t.Context())
			var refused *gateway.RefusedError
			switch {
			case errors.As(err, &refused):
				got = append(got, "refused "+string(refused.ID))
			case err != nil:
				if want := "[a refused 2 c]"; fmt.Sprint(got) != want {
					t.Errorf("got %v, want %s", got, want)
				}
				return
			default:
				got = append(got, m.Method)
			}
		}
	})
	t.Run("blank lines, carriage returns and a missing last newline are nothing", func(t *testing.T) {
		c := lines(t, "\n\r\n  \n"+`{"jsonrpc":"2.0","method":"n"}`+"\r\n"+`{"jsonrpc":"2.0","method":"o"}`, nil)
		for _, want := range []string{"n", "o"} {
			if m, err := c.Read(t.Context()); err != nil || m.Method != want {
				t.Fatalf("Read = %+v, %v", m, err)
			}
		}
	})
	t.Run("the end of its context ends it", func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		c := gateway.NewLineConn(r, nopWriter{io.Discard}, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Read = %v", err)
		}
	})
}

func TestLineConn_Write(t *testing.T) {
	t.Run("a message is one line whatever white space it has", func(t *testing.T) {
		var out strings.Builder
		c := gateway.NewLineConn(io.NopCloser(strings.NewReader("")), nopWriter{&out}, nil)
		defer c.Close()
		m, err := gateway.ParseMessage([]byte("{\n \"jsonrpc\":\"2.0\",\r\n \"method\":\"m\"}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "\r") {
			t.Errorf("wrote %q", out.String())
		}
	})
	t.Run("a pipe without a reader is proof that nothing was sent", func(t *testing.T) {
		r, w := io.Pipe()
		r.Close()
		c := gateway.NewLineConn(io.NopCloser(strings.NewReader("")), w, nil)
		defer c.Close()
		written, err := c.Write(t.Context(), gateway.NewNotification("m", nil))
		if err == nil || written {
			t.Errorf("Write = %v, %v", written, err)
		}
	})
	t.Run("a reader that leaves in mid-message is no such proof", func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			io.ReadFull(r, make([]byte, 5))
			r.Close()
		}()
		c := gateway.NewLineConn(io.NopCloser(strings.NewReader("")), w, nil)
		defer c.Close()
		written, err := c.Write(t.Context(), gateway.NewNotification("m", nil))
		if err == nil || !written {
			t.Errorf("Write = %v, %v", written, err)
		}
	})
	t.Run("a connection that takes nothing more ends", func(t *testing.T) {
		r, w := io.Pipe()
		r.Close()
		in, far := io.Pipe()
		defer far.Close()
		c := gateway.NewLineConn(in, w, nil)
		defer c.Close()
		c.Write(t.Context(), gateway.NewNotification("m", nil))
		if _, err := c.Read(t.Context()); err == nil {
			t.Error("Read passed")
		}
	})
	t.Run("many writers do not mix their lines", func(t *testing.T) {
		r, w := io.Pipe()
		out := gateway.NewLineConn(io.NopCloser(strings.NewReader("")), w, nil)
		in := gateway.NewLineConn(r, nopWriter{io.Discard}, nil)
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				params := fmt.Appendf(nil, `{"i":%d,"pad":%q}`, i, strings.Repeat("p", 1000*i))
				if _, err := out.Write(t.Context(), gateway.NewNotification("m", params)); err != nil {
					t.Error(err)
				}
			})
		}
		for range 32 {
			if _, err := in.Read(t.Context()); err != nil {
				t.Errorf("a mixed line: %v", err)
			}
		}
		wg.Wait()
		out.Close()
		in.Close()
	})
}
