# What `cmake --install` puts under the prefix: the command, the library, its headers, and the files that
# make find_package(cairn) work from there.
include(CMakePackageConfigHelpers)

set(cairn_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
get_target_property(CAIRN_LIBRARY_TYPE cairn TYPE)
if(CAIRN_LIBRARY_TYPE STREQUAL "SHARED_LIBRARY")
  set_target_properties(cairn_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

install(TARGETS cairn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET cairn_mpi)
  set(cairn_mpi cairn_mpi)
endif()
install(TARGETS cairn ${cairn_mpi} EXPORT cairnTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

install(EXPORT cairnTargets NAMESPACE cairn:: DESTINATION ${cairn_cmake_dir})
configure_package_config_file(cmake/cairnConfig.cmake.in ${CMAKE_BINARY_DIR}/cairnConfig.cmake
  INSTALL_DESTINATION ${cairn_cmake_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cairnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cairnConfig.cmake ${CMAKE_BINARY_DIR}/cairnConfigVersion.cmake
  cmake/optional.cmake DESTINATION ${cairn_cmake_dir})
