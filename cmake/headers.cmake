# cairn_headers(TARGET [OF] [HEADERS...]): clang reads the headers that nearly every source includes once for the target, and
# these; with a target OF, which has the same options and definitions, what OF has read is used. That spares a third of
# a build. Nothing relies on it: with -DCAIRN_HEADERS=OFF, as the presets lint and debug have it, sources have only what
# they name. (GCC 12 gains little, and breaks down where OF is compiled with another -O.)
function(cairn_headers target)
  if(NOT CAIRN_HEADERS OR NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  set(more ${ARGN})
  list(POP_FRONT more of)
  if(TARGET "${of}")
    target_precompile_headers(${target} REUSE_FROM ${of})
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <condition_variable> <cstddef> <cstdint>
    <cstring> <deque> <exception> <functional> <iterator> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set>
    <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> ${ARGN})
endfunction()
