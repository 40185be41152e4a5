package chainfile

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/hosts"
)

// Options says what the hosts of a File are connected with.
type Options struct {
	// Lookup finds the value of an environment variable, as os.LookupEnv does.
	Lookup func(name string) (value string, ok bool)
	// Logger is told of connections. Defaults to none.
	Logger *slog.Logger
	// Stderr takes the standard error of commands. Defaults to nowhere.
	Stderr io.Writer
}

// Use puts every host of the file on c, in order, and returns them for their Status. It begins to connect
// and does not wait: a host that cannot be reached fails when it is asked, and its required interceptors
// block. The hosts
// are closed by the caller, after the chain is drained; when Use fails it has closed them.
func (f *File) Use(c *chain.Chain, opts *Options) (used []*hosts.Host, err error) {
	defer func() {
		if err != nil {
			Close(used)
			used = nil
		}
	}()
	for i := range f.Hosts {
		h := &f.Hosts[i]
		host, err := h.open(opts)
		if err != nil {
			return used, err
		}
		used = append(used, host)
		if err := c.Use(host, h.Policy()); err != nil {
			return used, err
		}
	}
	for _, host := range used {
		host.Begin()
	}
	return used, nil
}

// Close closes all of them.
func Close(all []*hosts.Host) {
	for _, h := range all {
		h.Close()
	}
}

func (h *Host) open(opts *Options) (*hosts.Host, error) {
	o := &hosts.Options{
		Remote:  chain.RemoteOptions{Respond: h.Respond, Wrapped: h.Wrapped, Strict: h.Strict},
		Timeout: time.Duration(h.Timeout), Connections: h.Connections,
		Logger: opts.Logger, Stderr: opts.Stderr,
	}
	for _, name := range slices.Sorted(maps.Keys(h.Env)) {
		value, err := h.secret("env "+name, h.Env[name], opts)
		if err != nil {
			return nil, err
		}
		o.Env = append(o.Env, name+"="+value)
	}
	o.Header = http.Header{}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		value, err := h.secret("header "+name, h.Headers[name], opts)
		if err != nil {
			return nil, err
		}
		o.Header.Set(name, value)
	}
	if h.URL != "" {
		return hosts.URL(h.Name, h.URL, o)
	}
	return hosts.Command(h.Name, h.Command, o)
}

// secret is the value that env:VAR stands for.
func (h *Host) secret(field, reference string, opts *Options) (string, error) {
	variable, ok := strings.CutPrefix(reference, "env:")
	if !ok {
		return "", fmt.Errorf("host %s: %s is not env:NAME", h.Name, field)
	}
	value, set := opts.Lookup(variable)
	if !set {
		return "", &MissingEnvError{h.Name, field, variable}
	}
	return value, nil
}
