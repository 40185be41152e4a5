package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/undolog/undolog/httpapi"
	"github.com/undolog/undolog/internal/mcptest"
)

// startBrowser starts Chromium for a test; where there is none it is installed, or the test fails.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "../scripts/chromium").CombinedOutput(); err != nil {
		t.Fatalf("no browser: %v\n%s", err, out)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU)
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses to sandbox as root
	}
	// Not t.Context(): it ends before the cleanups, and the browser is ended by them.
	allocator, end := chromedp.NewExecAllocator(context.Background(), opts...)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(browser); err != nil {
			t.Logf("the browser does not end well: %v", err) // as on a busy machine, on which its time for that is short
		}
		end()
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start browser: %v", err)
	}
	return browser
}

// window is a person's browser: nothing is shared with other windows.
type window struct {
	t   *testing.T
	ctx context.Context
}

func openWindow(t *testing.T, browser context.Context) *window {
	t.Helper()
	ctx, _ := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	w := &window{t: t, ctx: ctx}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("the window does not close well: %v", err)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // without a deadline: the window would end with it
		t.Fatalf("open a window: %v", err)
	}
	return w
}

func (w *window) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// is evaluates an expression about the page.
func (w *window) is(expression string) bool {
	w.t.Helper()
	return evaluate[bool](w, "Boolean("+expression+")")
}

func (w *window) text(selector string) string {
	w.t.Helper()
	return evaluate[string](w, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}

func evaluate[T any](w *window, expression string) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		w.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return v
}

func (w *window) goTo(url string) {
	w.t.Helper()
	w.do("go to "+url, chromedp.Navigate(url))
}

// click clicks an element as soon as it can be clicked: in one step, before the page can put another in its place.
func (w *window) click(selector string) {
	w.t.Helper()
	w.until("to click "+selector, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		if (!e || e.disabled || !e.checkVisibility()) return false;
		e.click();
		return true;
	})()`, selector))
}

// write puts text into a field in the place of what is there.
func (w *window) write(selector, text string) {
	w.t.Helper()
	w.do("see "+selector, chromedp.WaitVisible(chromedp.CSS(selector)))
	w.is(fmt.Sprintf(`document.querySelector(%q).value = ""`, selector))
	w.do("write into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// until waits until an expression is true of the page.
func (w *window) until(what, expression string) {
	w.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		if w.is(expression) {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("%s: the page says %q", what, w.text("body"))
		case <-tick.C:
		}
	}
}

// says waits until an element has a text in it.
func (w *window) says(selector, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s to say %q", selector, text), fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector, text))
}

// logIn opens the page as an approver, at a path.
func (w *window) logIn(base, token, path string) {
	w.t.Helper()
	w.goTo(base + path)
	w.write("#token", token)
	w.click("#enter")
	w.until("to be logged in", `document.getElementById("user").innerText !== ""`)
}

// site is a handler at an address that stays while programs come and go.
type site struct {
	w    *world
	addr string
	base string

	mu   sync.Mutex
	stop func()
}

func newSite(w *world) *site {
	w.t.Helper()
	s := &site{w: w, addr: "127.0.0.1:" + mcptest.FreePort(w.t)}
	s.start()
	w.t.Cleanup(func() { s.end() })
	return s
}

// start serves with a log of its own, as a program of its own would.
func (s *site) start() {
	s.w.t.Helper()
	log := s.w.open()
	api, err := httpapi.New(log, &httpapi.Options{Approvers: approvers(), LookEvery: 20 * time.Millisecond})
	if err != nil {
		s.w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.base = "http://" + s.addr
	server := &http.Server{Handler: api}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = func() {
		if err := server.Close(); err != nil {
			s.w.t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			s.w.t.Error(err)
		}
		if err := log.Close(); err != nil {
			s.w.t.Error(err)
		}
	}
}

func (s *site) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
	s.stop = nil
}

func hasAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
