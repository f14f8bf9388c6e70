# How tests and benches run on the software driver. Its libraries are in a folder of their own, which only
# this environment names. No other program can thus load them instead of NVIDIA's libraries.
set(CUDASIM_LIBRARY_DIR ${CMAKE_BINARY_DIR}/lib/cudasim)

# cudasim_environment(OUT_VAR NAME [DEVICES n] [MEMORY size]): sets the ENVIRONMENT list of a test that runs
# on software devices of its own. NAME is unique among tests, since tests run concurrently. The test also
# needs the driver to be built: add_dependencies(TARGET cudasim).
function(cudasim_environment out name)
  cmake_parse_arguments(A "" "DEVICES;MEMORY" "" ${ARGN})
  if(NOT A_DEVICES)
    set(A_DEVICES 2)
  endif()
  if(NOT A_MEMORY)
    set(A_MEMORY 2GiB)
  endif()
  set(${out} "LD_LIBRARY_PATH=${CUDASIM_LIBRARY_DIR};CUDASIM_DIR=${CMAKE_BINARY_DIR}/cudasim-state/${name}"
      "CUDASIM_DEVICES=${A_DEVICES}" "CUDASIM_MEMORY=${A_MEMORY}" PARENT_SCOPE)
endfunction()
