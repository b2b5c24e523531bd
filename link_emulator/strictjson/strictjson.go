// Package strictjson reads JSON objects field by field and refuses everything that was not asked for: unknown and duplicate
// fields, wrong types, numbers out of range. encoding/json alone accepts duplicates and other cases of a name, and
// cannot tell an absent field from null.
package strictjson

import (
	"bytes"
	"encoding/json"
	"io"
	"sort"
	"strconv"

	"containernet-env/link_emulator/refusal"
)

// Object is a JSON object that is being read. Readers take a field out; after the first refusal they return zero values
// and keep that refusal for Done.
type Object struct {
	path   string
	fields map[string]json.RawMessage
	err    error
}

// Parse reads one object; nothing but white space may follow it.
func Parse(data []byte) (*Object, error) {
	object := &Object{}
	if err := object.parse(data); err != nil {
		return nil, err
	}
	return object, nil
}

func (o *Object) parse(data []byte) error {
	if !json.Valid(data) {
		var anything any
		return refusal.New(o.path, "no valid JSON: %v", json.Unmarshal(data, &anything))
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	token, err := decoder.Token()
	if err != nil {
		return refusal.New(o.path, "no valid JSON: %v", err)
	}
	if token != json.Delim('{') {
		return refusal.New(o.path, "got %s, allowed: an object", describe(data))
	}
	o.fields = map[string]json.RawMessage{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return refusal.New(o.path, "no valid JSON: %v", err)
		}
		name, _ := token.(string) // valid JSON has only strings here
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil && err != io.EOF {
			return refusal.New(o.at(name), "no valid JSON: %v", err)
		}
		if _, twice := o.fields[name]; twice {
			return refusal.New(o.at(name), "the field stands there twice")
		}
		o.fields[name] = value
	}
	return nil
}

// Has reports whether a field is present, null or not, and not yet read.
func (o *Object) Has(name string) bool {
	_, ok := o.fields[name]
	return ok
}

// Null reports whether a field is present with the value null, and takes it out if so.
func (o *Object) Null(name string) bool {
	if raw, ok := o.fields[name]; ok && string(raw) == "null" {
		delete(o.fields, name)
		return true
	}
	return false
}

// Int reads a required integer in low..high.
func (o *Object) Int(name string, low, high int64) int64 {
	raw, ok := o.take(name)
	if !ok {
		return 0
	}
	value, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || value < low || value > high {
		o.refuse(name, "got %s, allowed: an integer from %d to %d", describe(raw), low, high)
		return 0
	}
	return value
}

// IntOr is Int for an optional field.
func (o *Object) IntOr(name string, absent, low, high int64) int64 {
	if !o.Has(name) {
		return absent
	}
	return o.Int(name, low, high)
}

// Float reads a required number in low..high.
func (o *Object) Float(name string, low, high float64) float64 {
	raw, ok := o.take(name)
	if !ok {
		return 0
	}
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(value >= low && value <= high) {
		o.refuse(name, "got %s, allowed: a number from %v to %v", describe(raw), low, high)
		return 0
	}
	return value
}

// String reads a required string of 1 to maxBytes bytes.
func (o *Object) String(name string, maxBytes int) string {
	raw, ok := o.take(name)
	if !ok {
		return ""
	}
	var value *string
	if err := json.Unmarshal(raw, &value); err != nil || value == nil || len(*value) == 0 || len(*value) > maxBytes {
		o.refuse(name, "got %s, allowed: a string of 1 to %d bytes", describe(raw), maxBytes)
		return ""
	}
	return *value
}

// Bool reads a required boolean.
func (o *Object) Bool(name string) bool {
	raw, ok := o.take(name)
	if ok && string(raw) != "true" && string(raw) != "false" {
		o.refuse(name, "got %s, allowed: true or false", describe(raw))
	}
	return string(raw) == "true"
}

// Object reads a required object with fn.
func (o *Object) Object(name string, fn func(*Object)) {
	if raw, ok := o.take(name); ok {
		o.descend(o.at(name), raw, fn)
	}
}

// Objects reads a required array of low to high objects with fn, in order.
func (o *Object) Objects(name string, low, high int, fn func(*Object)) {
	raw, ok := o.take(name)
	if !ok {
		return
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil || items == nil || len(items) < low || len(items) > high {
		o.refuse(name, "got %s, allowed: an array of %d to %d objects", describe(raw), low, high)
		return
	}
	for i, item := range items {
		o.descend(o.at(name)+"["+strconv.Itoa(i)+"]", item, fn)
	}
}

// StringLists reads a required array of arrays of strings of 1 to maxBytes bytes.
func (o *Object) StringLists(name string, maxBytes int) (lists [][]string) {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	var read [][]*string
	if err := json.Unmarshal(raw, &read); err != nil || read == nil {
		o.refuse(name, "got %s, allowed: an array of arrays of strings", describe(raw))
		return nil
	}
	for _, items := range read {
		list := make([]string, 0, len(items))
		for _, item := range items {
			if item == nil || len(*item) == 0 || len(*item) > maxBytes {
				o.refuse(name, "got %s, allowed: strings of 1 to %d bytes", describe(raw), maxBytes)
				return nil
			}
			list = append(list, *item)
		}
		lists = append(lists, list)
	}
	return lists
}

func (o *Object) descend(path string, raw json.RawMessage, fn func(*Object)) {
	inner := &Object{path: path}
	if err := inner.parse(raw); err != nil {
		o.keep(err)
		return
	}
	fn(inner)
	o.keep(inner.Done())
}

// Refuse blames a field for a reason found by the caller.
func (o *Object) Refuse(name, format string, args ...any) { o.refuse(name, format, args...) }

// Blame keeps an error that the caller found while checking this object; a refusal's field is taken as relative to it.
func (o *Object) Blame(err error) {
	if err != nil {
		o.keep(refusal.Under(o.path, err))
	}
}

// Err is the first refusal so far.
func (o *Object) Err() error { return o.err }

// Done returns the first refusal; a field that nobody read is one.
func (o *Object) Done() error {
	if o.err == nil && len(o.fields) > 0 {
		var unknown []string
		for name := range o.fields {
			unknown = append(unknown, name)
		}
		sort.Strings(unknown)
		o.refuse(unknown[0], "unknown field")
	}
	return o.err
}

func (o *Object) take(name string) (json.RawMessage, bool) {
	raw, ok := o.fields[name]
	delete(o.fields, name)
	if o.err != nil {
		return nil, false
	}
	if !ok {
		o.refuse(name, "the field is missing")
	}
	return raw, ok
}

func (o *Object) refuse(name, format string, args ...any) {
	o.keep(refusal.New(o.at(name), format, args...))
}

func (o *Object) keep(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *Object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// describe shows a value in a message, on one line and not too long.
func describe(raw []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return "something that is no JSON"
	}
	const most = 60
	if line.Len() > most {
		return string(bytes.ToValidUTF8(line.Bytes()[:most], nil)) + "..."
	}
	return line.String()
}
