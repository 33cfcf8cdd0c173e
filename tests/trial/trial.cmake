# add_trial(NAME SOURCES...): a program in which the points and planted bugs of base/trial.h are alive.
#
# The sources that hold any are compiled once more, with them switched on, and come before the library, which then
# need not give what they define. Everything else is the library that users get.
set(with_points)
foreach(source ${cairn_sources})
  file(STRINGS ${source} found REGEX "CAIRN_(POINT|BUG)\\(" LIMIT_COUNT 1)
  if(found)
    list(APPEND with_points ${source})
  endif()
endforeach()
add_library(cairn_trial OBJECT ${with_points} ${CMAKE_CURRENT_LIST_DIR}/trial.cc)
target_compile_definitions(cairn_trial PRIVATE CAIRN_TRIAL CAIRN_VERSION="${CAIRN_VERSION}")
target_include_directories(cairn_trial PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(cairn_trial PRIVATE cairn cairn_flags ${CAIRN_LIBRARIES})

function(add_trial name)
  add_executable(${name} ${ARGN} $<TARGET_OBJECTS:cairn_trial>)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests/trial)
  target_link_libraries(${name} PRIVATE cairn cairn_flags ${CAIRN_LIBRARIES})
endfunction()

# add_os_trial(NAME SOURCES...): the same, and the calls of the operating system that are about files come to
# os_calls.h first. io_uring does not: such programs run with CAIRN_IO=buffered or direct.
set(watched_calls open openat syscall read pread write pwrite ftruncate fallocate fsync fdatasync renameat linkat
  unlink unlinkat mkdir stat fstat fstatat fstatvfs fstatfs fdopendir readdir flock close)
list(TRANSFORM watched_calls PREPEND "-Wl,--wrap=")
set(os_calls_source ${CMAKE_CURRENT_LIST_DIR}/os_calls.cc)
set(trial_directory ${CMAKE_CURRENT_LIST_DIR})

function(add_os_trial name)
  add_trial(${name} ${ARGN} ${os_calls_source})
  target_include_directories(${name} PRIVATE ${trial_directory})
  target_link_options(${name} PRIVATE ${watched_calls})
endfunction()
