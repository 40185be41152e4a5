package httpapi

import (
	"maps"
	"slices"
)

// Routes are the methods and paths of the API.
func Routes() []string {
	routes := slices.Collect(maps.Keys((&Handler{}).endpoints()))
	return slices.Sorted(slices.Values(append(routes, "POST /v1/session")))
}
