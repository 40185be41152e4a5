package httpapi

import (
	"embed"
	"io/fs"
	"net/http"

	"github.com/google/uuid"
)

//go:embed page
var pageFiles embed.FS

// routePage serves the page: one document for every address of it, and the files that it loads.
func (h *Handler) routePage(mux *http.ServeMux) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the directory is embedded
	}
	document := func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "page.html") }
	mux.HandleFunc("GET /{$}", document)
	mux.HandleFunc("GET /approvals/{id}", document)
	mux.HandleFunc("GET /effects/{id}", document)
	mux.HandleFunc("GET /grants", document)
	mux.HandleFunc("GET /{id}", shortLink)
	mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
}

// shortLink leads an id on to the page of its request.
func shortLink(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if uuid.Validate(id) != nil {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, "/approvals/"+id, http.StatusFound)
}
