# Which label a test has: quick, full, long or cluster (docs/testing.md). A file of
# tests says so in a line of its own near its top,
#
#     label: full
#
# and is quick if it says nothing. The line `label: quick, long` or `label: full, long`
# adds a long form of the same test, run with BRIM_TEST_LONG=1.
#
# brim_label(FILE LABEL HAS_LONG) sets the two variables.
function(brim_label file label has_long)
  # a changed line is seen by the next build
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" line REGEX "^( \\* |# )label: " LIMIT_COUNT 1)
  set(${has_long} FALSE PARENT_SCOPE)
  if(NOT line)
    set(${label} quick PARENT_SCOPE)
  elseif(line MATCHES "label: (quick|full|long|cluster)(, long)?$")
    set(${label} ${CMAKE_MATCH_1} PARENT_SCOPE)
    if(CMAKE_MATCH_2)
      set(${has_long} TRUE PARENT_SCOPE)
    endif()
  else()
    message(FATAL_ERROR "${file}: '${line}' should be 'label: quick', full, long or cluster, "
      "perhaps followed by ', long'")
  endif()
endfunction()
