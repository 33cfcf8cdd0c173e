// How deep a nested value may be before a walk over it stops.
//
// Walks over values are recursive. Files are limited to far less (Limits::depth); this bound is for
// values built by a program, so that a mistake there is an error and not a stack overflow.
#pragma once

#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {

inline constexpr int kMaxNesting = 1000;

inline void check_nesting(int depth) {
  if (depth > kMaxNesting) {
    throw Error(ErrorCode::kLimit,
                "a value is nested deeper than " + std::to_string(kMaxNesting) + " levels");
  }
}

// operator== with the number of containers around the two sides.
bool equal(const Value& a, const Value& b, int depth);
bool equal(const List& a, const List& b, int depth);
bool equal(const Dict& a, const Dict& b, int depth);

}  // namespace cairn
