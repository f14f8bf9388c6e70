# Builds of the tests under a sanitizer (docs/testing.md). The presets `asan` and `tsan` set the option. The
# target sanitized_tests builds only the tests that run under a sanitizer.
set(GPUMIGRATE_SANITIZE "" CACHE STRING "Build the tests under a sanitizer: address (and undefined behaviour) or thread")
set_property(CACHE GPUMIGRATE_SANITIZE PROPERTY STRINGS "" address thread)

set(SANITIZER_OPTIONS)
set(SANITIZER_LINK_OPTIONS)
if(GPUMIGRATE_SANITIZE STREQUAL "address")
  # float-cast-overflow is not part of `undefined`. It is needed because estimates and rates are doubles that
  # are converted to byte counts.
  set(SANITIZER_LINK_OPTIONS -fsanitize=address,undefined,float-cast-overflow)
  set(SANITIZER_OPTIONS ${SANITIZER_LINK_OPTIONS} -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS)
elseif(GPUMIGRATE_SANITIZE STREQUAL "thread")
  set(SANITIZER_LINK_OPTIONS -fsanitize=thread)
  set(SANITIZER_OPTIONS ${SANITIZER_LINK_OPTIONS})
elseif(GPUMIGRATE_SANITIZE)
  message(FATAL_ERROR "GPUMIGRATE_SANITIZE is '${GPUMIGRATE_SANITIZE}': address or thread is known, or nothing")
endif()

if(GPUMIGRATE_SANITIZE)
  # Because of the sanitizer's checks, g++ 12 reports uninitialized values that are in fact initialized.
  list(APPEND SANITIZER_OPTIONS -O1 -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  add_compile_options(${SANITIZER_OPTIONS})
  add_link_options(${SANITIZER_LINK_OPTIONS})
  add_custom_target(sanitized_tests)
endif()

# sanitized_test(TARGET...): registers the targets that a test under a sanitizer needs built. It does nothing
# in other builds.
function(sanitized_test)
  if(GPUMIGRATE_SANITIZE)
    add_dependencies(sanitized_tests ${ARGN})
  endif()
endfunction()

# unsanitized_directory(): builds the targets of the calling folder as in a plain build. The command lines are
# the same, so that ccache has the results.
macro(unsanitized_directory)
  get_directory_property(directory_options COMPILE_OPTIONS)
  list(REMOVE_ITEM directory_options ${SANITIZER_OPTIONS})
  set_directory_properties(PROPERTIES COMPILE_OPTIONS "${directory_options}")
  get_directory_property(directory_options LINK_OPTIONS)
  list(REMOVE_ITEM directory_options ${SANITIZER_LINK_OPTIONS})
  set_directory_properties(PROPERTIES LINK_OPTIONS "${directory_options}")
endmacro()

# unsanitized_target(TARGET): builds one target as in a plain build, without the sanitizer.
function(unsanitized_target target)
  foreach(property COMPILE_OPTIONS LINK_OPTIONS)
    get_target_property(target_options ${target} ${property})
    if(target_options)
      list(REMOVE_ITEM target_options ${SANITIZER_OPTIONS} ${SANITIZER_LINK_OPTIONS})
      set_target_properties(${target} PROPERTIES ${property} "${target_options}")
    endif()
  endforeach()
endfunction()
