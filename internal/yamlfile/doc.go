// Package yamlfile reads YAML files that people write: plain YAML as JSON, checked by a JSON Schema, and
// every complaint with the line and column that it is about.
package yamlfile
