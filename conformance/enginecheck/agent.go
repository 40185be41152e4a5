package enginecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
)

// revisionOf is the protocol revision that an agent speaks in a fixture.
func revisionOf(f *conformance.Fixture) string {
	for i := range f.Steps {
		if c := f.Steps[i].Context; c != nil && c.Protocol != "" {
			return c.Protocol
		}
	}
	return wire.Legacy
}

// agents are those who call the engine: one on its standard streams, or one for each principal over HTTP.
type agents struct {
	revision string
	hear     func(m *wire.Message) json.RawMessage

	lines *wire.Lines // on standard streams

	url    string // over HTTP
	tokens map[string]string
	web    map[string]*wire.HTTP
}

// as is the agent of a principal; empty is whoever comes first.
func (a *agents) as(ctx context.Context, principal string) (wire.Conn, error) {
	if a.lines != nil {
		return a.lines, nil
	}
	if principal == "" && len(a.tokens) > 0 {
		principal = slices.Min(slices.Collect(maps.Keys(a.tokens)))
	}
	if known := a.web[principal]; known != nil {
		return known, nil
	}
	header := http.Header{}
	if token := a.tokens[principal]; token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	agent := wire.NewHTTP(a.url, header)
	agent.OnMessage = a.hear
	a.web[principal] = agent
	_, err := agent.Start(ctx, a.revision)
	return agent, err
}

func (a *agents) close() error {
	var errs []error
	for _, agent := range a.web {
		errs = append(errs, agent.Close())
	}
	if a.lines != nil {
		errs = append(errs, a.lines.Close())
	}
	return errors.Join(errs...)
}

// address is one at which an engine is told to listen. The UDP port of the same number is held meanwhile, which
// nobody speaks to: whoever else looks for an address sees by it that this one is taken.
type address struct {
	net.PacketConn
}

// freeAddress is an address at which nobody listens, until it is closed. Its port is below those that systems give
// out by themselves: one of those would soon be somebody else's.
func freeAddress() (*address, error) {
	var last error
	for range 100 {
		taken, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp", taken.LocalAddr().String())
		if err == nil {
			return &address{taken}, l.Close()
		}
		last = errors.Join(err, taken.Close())
	}
	return nil, fmt.Errorf("find a free address: %w", last)
}

func (a *address) String() string { return a.LocalAddr().String() }

// server is an engine that serves agents over HTTP.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// startPatience is how long an engine may take until it listens.
const startPatience = 30 * time.Second

// startServer starts a program and waits until it listens where it was told to.
func startServer(ctx context.Context, argv, env []string, errs io.Writer, endpoint string) (*server, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = errs
	if len(env) > 0 {
		cmd.Env = append(cmd.Environ(), env...)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	s := &server{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // how the engine ends is not what is asked
	}()
	if err := s.await(ctx, endpoint); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *server) await(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-again.C:
		case <-s.ended:
			return fmt.Errorf("the engine has ended, and nobody listens at %s", u.Host)
		case <-ctx.Done():
			return fmt.Errorf("wait for the engine to listen at %s: %w", u.Host, ctx.Err())
		}
	}
}

// close asks the program to end, and ends it when it does not.
func (s *server) close() {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended by itself
	timer := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.ended
}
