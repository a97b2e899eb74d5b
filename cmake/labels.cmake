# Which label a test has: quick, full, long or cluster (docs/testing.md). A file of
# tests says so in a line of its own near its top,
#
#     label: full
#
# and is quick if it says nothing. A second label adds another form of the same test:
#
#     label: quick, full    NAME.full too, for what needs the packages that only the full tests have
#     label: quick, long    NAME.long too, run with BRIM_TEST_LONG=1

# brim_label(FILE LABEL FORM) sets the two variables; FORM is empty, full or long.
function(brim_label file label form)
  # a changed line is seen by the next build
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" line REGEX "^( \\* |# )label: " LIMIT_COUNT 1)
  set(${form} "" PARENT_SCOPE)
  if(NOT line)
    set(${label} quick PARENT_SCOPE)
  elseif(line MATCHES "label: (quick|full|long|cluster)(, (full|long))?$")
    set(${label} ${CMAKE_MATCH_1} PARENT_SCOPE)
    set(${form} "${CMAKE_MATCH_3}" PARENT_SCOPE)
  else()
    message(FATAL_ERROR "${file}: '${line}' should be 'label: quick', full, long or cluster, "
      "perhaps followed by ', full' or ', long'")
  endif()
endfunction()

# brim_test(NAME LABEL COMMAND...), in the caller's `environment`. A program of cmocka's is
# skipped when all of its tests are: its last words are then that none has passed, with no
# capital F of a failure behind them.
function(brim_test name label)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${test_seconds} SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}" LABELS ${label}
    SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 test[^F]*SKIPPED[^F]*$")
endfunction()

# brim_file_test(NAME FILE COMMAND...): the tests of a file, in the forms that it names. Under
# a sanitizer the packages of the full tests are there for all, so that no other form is needed.
function(brim_file_test name file)
  brim_label("${file}" label form)
  brim_test(${name} ${label} ${ARGN})
  if(form STREQUAL "full" AND NOT BRIM_SANITIZE)
    brim_test(${name}.full full ${ARGN})
  elseif(form STREQUAL "long")
    brim_test(${name}.long long ${ARGN})
    set_tests_properties(${name}.long PROPERTIES
      TIMEOUT 7200 ENVIRONMENT "${environment};BRIM_TEST_LONG=1")
  endif()
endfunction()
