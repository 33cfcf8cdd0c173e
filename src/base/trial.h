// Places where a test steps in. They exist in the programs of tests/trial alone: elsewhere they are nothing.
//
// A point is a moment at which a process may be killed, fail or be held up; a bug is a mistake that the tests
// must find. Both are named here and chosen by the environment:
//
//   CAIRN_POINT("publish.before_metadata");         // CAIRN_FAILPOINT=publish.before_metadata:2:kill
//   if (!CAIRN_BUG("no-file-sync")) ::fsync(fd);    // CAIRN_PLANT=no-file-sync
//
// Only in .cc files: those that hold one are compiled a second time, for the trials.
#pragma once

#ifdef CAIRN_TRIAL

namespace cairn::trial {

void reach(const char* point);
bool is_planted(const char* bug);

}  // namespace cairn::trial

#define CAIRN_POINT(name) ::cairn::trial::reach(name)
#define CAIRN_BUG(name) ::cairn::trial::is_planted(name)

#else

#define CAIRN_POINT(name) static_cast<void>(0)
#define CAIRN_BUG(name) false

#endif
