# Builds for libFuzzer (docs/testing.md). tools/fuzz sets the option, in a build folder of its own.
option(GPUMIGRATE_FUZZ "Build the fuzz targets under libFuzzer and sanitizers: needs clang++" OFF)

if(GPUMIGRATE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR GPUMIGRATE_SANITIZE)
    message(FATAL_ERROR "GPUMIGRATE_FUZZ needs clang++ (-DCMAKE_CXX_COMPILER=clang++) and no GPUMIGRATE_SANITIZE")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS
                      -O1 -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)  # for each level of optimization there is one here only
endif()
