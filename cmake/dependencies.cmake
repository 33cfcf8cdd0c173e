# What the library stands on (docs/dependencies.md says why). Required: fmt, nlohmann-json, CLI11 (command
# only), zlib. Each other one switches a feature on when it is there; `cairn --version` says which.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)
set(CAIRN_LIBRARIES fmt::fmt $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})

include(cmake/optional.cmake)
set(CAIRN_FEATURES)  # the optional ones that are in
foreach(name ISAL XXHASH ZSTD LIBURING)
  if(TARGET cairn::${name})
    list(APPEND CAIRN_LIBRARIES cairn::${name})
    list(APPEND CAIRN_FEATURES ${name})
  endif()
endforeach()
message(STATUS "Optional libraries found: ${CAIRN_FEATURES}")
find_package(MPI QUIET COMPONENTS CXX)
