# What `make install` and `make deb` put where:
#
#     bin/brim                                   the command line, libbrim inside it
#     include/brim.h
#     lib/libbrim.so, .so.0.1, .so.0.1.0, .a     the library
#     lib/pkgconfig/brim.pc                      pkg-config --libs brim
#     lib/cmake/brim/                            find_package(brim): brim::brim, brim::brim_static
#     share/man/man1/brim.1
#     share/bash-completion/completions/brim, share/zsh/site-functions/_brim,
#     share/fish/vendor_completions.d/brim.fish  printed by the command line itself
#     share/doc/brim/copyright
#
# Nothing of it holds the place where it was installed: the prefix is chosen when
# installing, and the folder may be moved.

# ------------------------------------------------------------------- library

set_target_properties(brim_shared PROPERTIES EXPORT_NAME brim)
# brim.h includes nothing of these, so that only those who link statically need
# them, by the names that every linker finds.
set(private_libraries xxhash z yajl jpeg spng webp)
foreach(name ${private_libraries} -pthread)
  target_link_libraries(brim_static INTERFACE $<INSTALL_INTERFACE:${name}>)
endforeach()
install(TARGETS brim_shared brim_static EXPORT brim)
install(FILES include/brim.h TYPE INCLUDE)

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/brim")
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/brimConfig.cmake.in brimConfig.cmake
  INSTALL_DESTINATION "${package}" NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(brimConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT brim NAMESPACE brim:: FILE brimTargets.cmake DESTINATION "${package}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/brimConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/brimConfigVersion.cmake" DESTINATION "${package}")

# The way from brim.pc up to the prefix, whatever lies between.
file(RELATIVE_PATH pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
list(TRANSFORM private_libraries PREPEND "-l" OUTPUT_VARIABLE pc_private)
list(JOIN pc_private " " pc_private)
configure_file(cmake/brim.pc.in brim.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/brim.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# -------------------------------------------------------------- command line

install(TARGETS brim)
install(FILES docs/man/brim.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright)

# A program for another machine, or one with a sanitizer, is not run while building.
if(NOT CMAKE_CROSSCOMPILING AND NOT BRIM_SANITIZE)
  set(completions "")
  foreach(shell bash zsh fish)
    set(completion "${CMAKE_CURRENT_BINARY_DIR}/completions/brim.${shell}")
    add_custom_command(OUTPUT "${completion}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_CURRENT_BINARY_DIR}/completions"
      COMMAND brim completion ${shell} > "${completion}"
      DEPENDS brim VERBATIM)
    list(APPEND completions "${completion}")
  endforeach()
  add_custom_target(completions ALL DEPENDS ${completions})
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/completions/brim.bash"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME brim)
  # Debian's zsh looks below /usr in a folder of another name.
  install(CODE "
    set(folder site-functions)
    if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\" AND EXISTS /etc/debian_version)
      set(folder vendor-completions)
    endif()
    file(INSTALL \"${CMAKE_CURRENT_BINARY_DIR}/completions/brim.zsh\" RENAME _brim
      DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")")
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/completions/brim.fish"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

# ------------------------------------------------------------ Debian package

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME brim)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "The brim authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "feeds training from data of any size in one memory budget")
set(CPACK_PACKAGE_DESCRIPTION
  "brim turns files into batches for training and evaluation loops inside one
memory budget, given in bytes. It says beforehand what a pipeline needs, refuses
to start with less, and never takes more while it runs. The package has the
library (shared and static), its header, and the command line.")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_CURRENT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "libxxhash-dev, zlib1g-dev, libyajl-dev, libjpeg-dev, libspng-dev, libwebp-dev, pkg-config | cmake")
include(CPack)
