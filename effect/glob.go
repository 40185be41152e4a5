package effect

// matchGlob reports whether a text matches a glob in which * stands for any run of characters, the empty
// one included, and ? for one character. Nothing else is special.
func matchGlob(glob, text string) bool {
	pattern, name := []rune(glob), []rune(text)
	star, resume := -1, 0
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0: // let the last star take one character more
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
