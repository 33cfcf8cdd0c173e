// What must be so after a loss of power, whatever it left.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "crash_states.h"
#include "small_checkpoint.h"

namespace cairn::trial {

// How often each thing was seen and done.
using Tally = std::map<std::string, std::uint64_t>;

// A directory with a checkpoint in DCP's form, and what may be there.
struct Expected {
  std::string path;           // in the tree
  std::optional<int> before;  // the version when it all began
  std::optional<int> after;   // the version when all is done; equal to `before` when nothing is to change
  bool marked = true;         // all files carry our marks, so that what is left of them can be told
};

// The checkpoint is one of the two versions, whole; once success was reported, the new one. For some states:
// verify() agrees, a clean-up keeps it, and the next save works without help, in memory and in `scratch`.
void check_checkpoint(const CrashState& state, const Expected& expected, const std::string& scratch,
                      Tally& tally);

// Nothing of dead saves is left when a clean-up has said so.
void check_cleaned(const CrashState& state, const std::string& path);

// A file of a conversion: absent, or byte for byte the old or the new one; a null pointer stands for none.
void check_file(const CrashState& state, const std::string& path, const FileBytes& before,
                const FileBytes& after, Tally& tally);

// A directory of safetensors files: no index, or the old or the new one, and all that it names.
void check_indexed(const CrashState& state, const std::string& path, const Tree& before, const Tree& after,
                   Tally& tally);

}  // namespace cairn::trial
