# What `cmake --install` puts under the prefix: the command with its man page and completions, the library, its headers,
# and the files that make find_package(cairn) and pkg-config work from there.
include(CMakePackageConfigHelpers)

set(cairn_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
get_target_property(CAIRN_LIBRARY_TYPE cairn TYPE)
if(CAIRN_LIBRARY_TYPE STREQUAL "SHARED_LIBRARY")
  set_target_properties(cairn_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

install(TARGETS cairn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES docs/cairn.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(CODE "
  foreach(place bash:bash-completion/completions/cairn zsh:zsh/site-functions/_cairn)
    string(REPLACE \":\" \";\" place \${place})
    list(GET place 0 shell)
    list(GET place 1 file)
    execute_process(COMMAND $<TARGET_FILE:cairn_cli> completion \${shell}
      OUTPUT_FILE ${PROJECT_BINARY_DIR}/completion.\${shell} COMMAND_ERROR_IS_FATAL ANY)
    cmake_path(GET file PARENT_PATH folder)
    cmake_path(GET file FILENAME name)
    file(INSTALL ${PROJECT_BINARY_DIR}/completion.\${shell} RENAME \${name}
      DESTINATION \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/\${folder})
  endforeach()")
install(TARGETS cairn EXPORT cairnTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET cairn_mpi)
  install(TARGETS cairn_mpi EXPORT cairnMpiTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT cairnMpiTargets NAMESPACE cairn:: DESTINATION ${cairn_cmake_dir})
endif()
install(DIRECTORY include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

install(EXPORT cairnTargets NAMESPACE cairn:: DESTINATION ${cairn_cmake_dir})
configure_package_config_file(cmake/cairnConfig.cmake.in ${PROJECT_BINARY_DIR}/cairnConfig.cmake
  INSTALL_DESTINATION ${cairn_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cairnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cairnConfig.cmake ${PROJECT_BINARY_DIR}/cairnConfigVersion.cmake
  cmake/optional.cmake DESTINATION ${cairn_cmake_dir})

# A static libcairn leaves to its user what it stands on.
set(cairn_pc_requires "")
if(CAIRN_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  set(cairn_pc_requires "fmt zlib")
  foreach(pair ISAL:libisal LIBDEFLATE:libdeflate ZSTD:libzstd LIBURING:liburing)
    string(REGEX MATCH "^[^:]+" feature "${pair}")
    string(REGEX MATCH "[^:]+$" package "${pair}")
    if(feature IN_LIST CAIRN_FEATURES)
      string(APPEND cairn_pc_requires " ${package}")
    endif()
  endforeach()
endif()
file(RELATIVE_PATH cairn_pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/cairn.pc.in ${PROJECT_BINARY_DIR}/cairn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
