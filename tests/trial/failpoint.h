// Failpoints chosen by a program itself: for one that makes many trials, each in a process that it forks.
#pragma once

#include <map>
#include <string>

namespace cairn::trial {

// "NAME:N:kill|error|sleep" as CAIRN_FAILPOINT says it, or "" for none, in place of what the environment
// says. Counts begin anew. To be called before a process starts threads.
void choose(const std::string& failpoint);

// How often each point was come to since.
std::map<std::string, long> reached();

}  // namespace cairn::trial
