package yamlfile

import "strings"

// nearest returns the known name that a misspelt one probably meant, empty when none is near.
func nearest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(plain(name), plain(k)); d < least && 2*d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// plain takes away what differs between spellings of one name: onToolError, on-tool-error, on_tool_error.
func plain(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// distance counts the single-byte insertions, deletions and replacements between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
