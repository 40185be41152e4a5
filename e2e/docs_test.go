package e2e_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/guarantees.md names are there.
func TestDocs_everyGuaranteeNamesATest(t *testing.T) {
	doc, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9_]+)`").FindAllSubmatch(doc, -1)
	if len(named) < 20 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, n := range named {
		if !definesTest(t, string(n[1]), string(n[2])) {
			t.Errorf("%s.%s does not exist", n[1], n[2])
		}
	}
}

func definesTest(t *testing.T, pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(src, []byte("func "+name+"(t *testing.T)")) {
			return true
		}
	}
	return false
}

// Every command in the README works: make targets are run by CI, undolog commands are run here, on a log
// that has an effect in doubt.
func TestDocs_readmeCommands(t *testing.T) {
	t.Parallel()
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range shellLines(t, "../README.md") {
		if target, ok := strings.CutPrefix(line, "make "); ok {
			if !bytes.Contains(ci, []byte("make "+target)) {
				t.Errorf("CI does not run %q", line)
			}
			continue
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			runReadmeLine(t, line)
		})
	}
}

// shellLines are the commands of a document's sh blocks, comments taken off.
func shellLines(t *testing.T, path string) []string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	inside := false
	for s := bufio.NewScanner(f); s.Scan(); {
		text := s.Text()
		switch {
		case text == "```sh":
			inside = true
		case strings.HasPrefix(text, "```"):
			inside = false
		case inside:
			command, _, _ := strings.Cut(text, "  #")
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	if len(lines) < 5 {
		t.Fatalf("%s has only %d commands", path, len(lines))
	}
	return lines
}

// What stands in the README for a database, and for an address to listen at.
const readmeDatabase = "postgres://undolog@db.example/undolog"

var readmeAddress = regexp.MustCompile(`127\.0\.0\.1:84[67]\d`)

// runReadmeLine runs one undolog command of the README as it stands, in a directory with what it needs.
func runReadmeLine(t *testing.T, line string) {
	w := newWorld(t, "faults")
	if strings.Contains(line, readmeDatabase) {
		w.onPostgres()
	}
	w.dieAt("after-answer", "charge", charge10)
	id := w.lost(t)
	if strings.Contains(line, " approve ") || strings.Contains(line, " deny ") {
		id = w.asked()
	}
	if strings.Contains(line, " again ") {
		w.ran("resolve", id, "--committed")
	}
	if strings.Contains(line, "--policy") || strings.Contains(line, "policy check") {
		w.ran(append([]string{"policy", "init", "--out", filepath.Join(w.dir, "undolog.yaml"), "--"}, w.server...)...)
	}
	writeFile(t, filepath.Join(w.dir, "tokens.yaml"), "- {token: aaaaaaaaaaaaaaaaaaaa, principal: alice}\n")
	line = strings.ReplaceAll(line, "0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42", id)
	line = readmeAddress.ReplaceAllString(line, "127.0.0.1:0")
	line = strings.ReplaceAll(line, readmeDatabase, w.db)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "UNDOLOG_DB="+w.db, "MCP_TOKEN=Bearer x",
		"PATH="+filepath.Dir(w.undolog)+":"+filepath.Dir(w.server[0])+":"+os.Getenv("PATH"))
	if strings.Contains(line, "--http") || strings.Contains(line, "--listen") || strings.Contains(line, "--follow") {
		w.startsAndEnds(cmd, line)
		return
	}
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(line, "--upstream") {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// asked leaves a call that waits for approval, and returns its id.
func (w *world) asked() string {
	w.t.Helper()
	w.withPolicy("version: 1\ntools: [{tool: charge, tier: irreversible, approve: always}]\n")
	agent := w.agent("--hold", "0")
	wantOutcome(w.t, agent.Call("1", "charge", `{"account":"b","amount":20}`), "approval_required")
	agent.CloseStdin()
	agent.Wait()
	for _, e := range w.log("--state", "awaiting_approval") {
		return e.ID
	}
	w.t.Fatal("nothing waits for approval")
	return ""
}

// startsAndEnds runs a command that goes on until it is told to end.
func (w *world) startsAndEnds(cmd *exec.Cmd, line string) {
	w.t.Helper()
	var out lockedOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Args[2] = "exec " + line
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	want := "listening on"
	if strings.Contains(line, "--follow") {
		want = "charge"
	}
	w.eventually(line+" to say "+want, func() bool { return strings.Contains(out.String(), want) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		w.t.Errorf("%s ended with %v\n%s", line, err, out.String())
	}
}
