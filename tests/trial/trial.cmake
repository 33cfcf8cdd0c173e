# add_trial(NAME SOURCES...): a program in which the points of base/trial.h are alive. The rooms that have points are
# compiled once more, and their objects are linked whole: of the library comes what they do not have.
set(rooms_with_points "")
foreach(source ${cairn_sources})
  file(STRINGS ${source} points REGEX "CAIRN_POINT\\(" LIMIT_COUNT 1)
  if(points)
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND rooms_with_points ${folder})
  endif()
endforeach()
set(trial_sources ${CMAKE_CURRENT_LIST_DIR}/trial.cc)
foreach(source ${cairn_sources})
  get_filename_component(folder ${source} DIRECTORY)
  if(folder IN_LIST rooms_with_points)
    list(APPEND trial_sources ${source})
  endif()
endforeach()
add_library(cairn_trial OBJECT ${trial_sources})
target_compile_definitions(cairn_trial PRIVATE CAIRN_TRIAL CAIRN_VERSION="${CAIRN_VERSION}")
target_include_directories(cairn_trial PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(cairn_trial PUBLIC cairn_flags ${CAIRN_LIBRARIES})
cairn_unity(cairn_trial)

function(add_trial name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE cairn_trial cairn_testing cairn)
  cairn_unity(${name})
endfunction()

# add_os_trial(NAME SOURCES...): the same, and the calls of the operating system that are about files come to
# os_calls.h first. io_uring does not: such programs run with CAIRN_IO=buffered or direct.
set(watched_calls open openat syscall read pread write pwrite ftruncate fallocate fsync fdatasync renameat linkat
  unlink unlinkat mkdir stat fstat fstatat fstatvfs fstatfs fdopendir readdir flock close)
list(TRANSFORM watched_calls PREPEND "-Wl,--wrap=")
set(os_calls_source ${CMAKE_CURRENT_LIST_DIR}/os_calls.cc)

function(add_os_trial name)
  add_trial(${name} ${ARGN} ${os_calls_source})
  target_link_options(${name} PRIVATE ${watched_calls})
endfunction()
