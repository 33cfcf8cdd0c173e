// Places where a test steps in. They exist in the programs of tests/trial alone: elsewhere they are nothing.
//
// A point is a moment at which a process may be killed, fail or be held up, chosen by the environment:
//
//   CAIRN_POINT("publish.before_metadata");         // CAIRN_FAILPOINT=publish.before_metadata:2:kill
//
// Only in .cc files: they are compiled a second time, for the trials.
#pragma once

#ifdef CAIRN_TRIAL

namespace cairn::trial {

void reach(const char* point);

}  // namespace cairn::trial

#define CAIRN_POINT(name) ::cairn::trial::reach(name)

#else

#define CAIRN_POINT(name) static_cast<void>(0)

#endif
