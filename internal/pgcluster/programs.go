package pgcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Program returns the path of one of PostgreSQL's programs, of the newest version that is here. Where
// there is none it installs PostgreSQL if it may, and says what to do if it may not.
func Program(name string) (string, error) {
	return program(name, "postgresql", findServer)
}

func bouncerProgram() (string, error) {
	return program("pgbouncer", "pgbouncer", func(name string) (string, bool) {
		return first(name, "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
	})
}

func program(name, pkg string, find func(string) (string, bool)) (string, error) {
	if path, found := find(name); found {
		return path, nil
	}
	release, err := lock("undolog-apt.lock")
	if err != nil {
		return "", err
	}
	defer release()
	if path, found := find(name); found { // installed while we waited
		return path, nil
	}
	if err := install(pkg); err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if path, found := find(name); found {
		return path, nil
	}
	return "", fmt.Errorf("find %s: it is not where it is looked for, although %s is installed", name, pkg)
}

// findServer prefers the directories of packaged versions, which hold all programs of one version, to
// PATH, which may hold some.
func findServer(name string) (string, bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is sound
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	return first(name, append(dirs, "/opt/homebrew/bin", "/usr/local/pgsql/bin")...)
}

func version(bin string) int {
	v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return v
}

func first(name string, dirs ...string) (string, bool) {
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, true
		}
	}
	path, err := exec.LookPath(name)
	return path, err == nil
}

// install installs a package of Debian's or Ubuntu's, and stops the service that comes with it.
func install(pkg string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("install %s, of version 15 or newer, or name a server with UNDOLOG_TEST_POSTGRES "+
			"(its URL, as a superuser); root on Debian and Ubuntu installs it by itself", pkg)
	}
	for _, args := range [][]string{
		{"update"},
		{"install", "-y", "--no-install-recommends", pkg},
	} {
		cmd := exec.Command(apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s %s: %w\n%s", args[0], pkg, err, tail(out))
		}
	}
	return stopService(pkg)
}

func stopService(name string) error {
	cmd := exec.Command("service", name, "stop")
	if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("stop the service that came with %s: %w\n%s", name, err, tail(out))
	}
	return nil
}

// lock waits for other test processes that install.
func lock(name string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("take lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { f.Close() }, nil
}

// tail is the end of a long output.
func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }
