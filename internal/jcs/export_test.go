package jcs

// General is Canonical without the short way for plain texts.
var General = canonical
