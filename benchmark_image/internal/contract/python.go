package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
)

// lineLength is the one that ruff is configured with.
const lineLength = 120

// python gives a module that ruff's formatter leaves unchanged.
func python() string {
	var b strings.Builder
	fmt.Fprintf(&b, `"""What the benchmark server takes: bounds, paths and the bodies of its requests.

Made from the table in benchmark_image/internal/spec by %s: do not edit.
"""

from __future__ import annotations

from typing import Literal, Required, TypedDict

`, howToMake)
	for _, p := range spec.Parameters {
		if p.Bounded() {
			name, unit := constantName(p.Name), map[string]string{"s": "_S", "bytes": "_BYTES", "requests/s": "_PER_S"}[p.Unit]
			fmt.Fprintf(&b, "%s_MIN%s, %s_MAX%s = %s, %s\n", name, unit, name, unit, pythonNumber(p.Min), pythonNumber(p.Max))
		}
	}
	fmt.Fprintf(&b, "KEY_SPACE_OF_DURATION = %s\n", pythonNumber(spec.DurationKeySpace))
	fmt.Fprintf(&b, "UNIQUE_VAL_SIZE_MIN_BYTES = %d\n\n", keys.VersionSize)
	for _, operation := range spec.Operations {
		fmt.Fprintf(&b, "%s_PATH = %q\n", strings.ToUpper(operation.Name()), operation.Path())
	}
	fmt.Fprintf(&b, "RESULT_PATH = %q\n", spec.ResultPath)
	class(&b, "LoadBody", "TypedDict, total=False", "What every benchmark takes.", func(p *spec.Parameter) bool {
		return len(p.Operations) == len(spec.Operations)
	})
	for _, operation := range spec.Operations {
		name := operation.Name()
		class(&b, strings.ToUpper(name[:1])+name[1:]+"Body", "LoadBody, total=False",
			"The body of POST "+operation.Path()+".",
			func(p *spec.Parameter) bool { return len(p.Operations) < len(spec.Operations) && p.Of(operation) })
	}
	return b.String()
}

func class(b *strings.Builder, name, bases, doc string, has func(*spec.Parameter) bool) {
	fmt.Fprintf(b, "\n\nclass %s(%s):\n    \"\"\"%s\"\"\"\n", name, bases, doc)
	for _, p := range spec.Parameters {
		if !has(p) {
			continue
		}
		b.WriteString("\n")
		line := "    #"
		for word := range strings.FieldsSeq(description(p)) {
			if len(line)+1+len(word) > lineLength {
				b.WriteString(line + "\n")
				line = "    #"
			}
			line += " " + word
		}
		fmt.Fprintf(b, "%s\n    %s: %s\n", line, p.Name, pythonType(p))
	}
}

func pythonType(p *spec.Parameter) string {
	kind := map[spec.Kind]string{
		spec.KindInteger: "int", spec.KindNumber: "float", spec.KindSeconds: "float", spec.KindText: "str",
		spec.KindBoolean: "bool",
	}[p.Kind()]
	if p.Choices != nil {
		kind = `Literal["` + strings.Join(p.Choices, `", "`) + `"]`
	}
	if p.Required {
		return "Required[" + kind + "]"
	}
	return kind
}

// constantName turns keySize into KEY_SIZE.
func constantName(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(c))
	}
	return b.String()
}

// pythonNumber groups the digits of large integers.
func pythonNumber(n float64) string {
	digits := strconv.FormatFloat(n, 'f', -1, 64)
	if strings.Contains(digits, ".") {
		return digits
	}
	var groups []string
	for len(digits) > 3 {
		groups = append(groups, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	groups = append(groups, digits)
	slices.Reverse(groups)
	return strings.Join(groups, "_")
}
