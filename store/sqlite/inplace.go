package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/undolog/undolog/store"
)

// openFile is the file that the writer has open, and where others look for it.
type openFile struct {
	path string
	info fs.FileInfo
}

func lookAt(path string) (*openFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &openFile{path: path, info: info}, nil
}

// inPlace fails with store.ErrReplaced once the path names another file, or none. SQLite would go on
// writing to the file that has no name any more: to other processes, and after a restart, nothing of it
// would ever have happened, and every call could happen again.
func (f *openFile) inPlace() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was removed; restart to begin with a new file", store.ErrReplaced, f.path)
	case err != nil: // a path that cannot be looked at now says nothing of the file
		return nil
	case !os.SameFile(f.info, info):
		return fmt.Errorf("%w: %s is another file now; restart to go on with that", store.ErrReplaced, f.path)
	}
	return nil
}
