# NCCL's header, from which the software NCCL (tests/simulators/ncclsim) and its tests are built. Without NCCL
# 2.28.7 or newer, only the software NCCL and its tests are left out.
set(GPUMIGRATE_NCCL OFF)
set(NCCL_HEADER ${CUDA_HOME}/include/nccl.h)
if(EXISTS ${NCCL_HEADER})
  file(STRINGS ${NCCL_HEADER} line REGEX "^#define NCCL_VERSION_CODE ")
  string(REGEX REPLACE "^#define NCCL_VERSION_CODE ([0-9]+).*$" "\\1" NCCL_VERSION_CODE "${line}")
  if(NCCL_VERSION_CODE GREATER_EQUAL 22807)
    set(GPUMIGRATE_NCCL ON)
  endif()
endif()
if(NOT GPUMIGRATE_NCCL)
  message(STATUS "No nccl.h of NCCL 2.28.7 or newer in ${CUDA_HOME}/include: ncclsim and its tests are not built")
endif()

# The software NCCL is in a folder of its own, like the software driver. Only the environment of a test names
# this folder.
set(NCCLSIM_LIBRARY_DIR ${CMAKE_BINARY_DIR}/lib/ncclsim)

# nccl_environment(OUT_VAR NAME [DEVICES n] [MEMORY size]): sets the cudasim_environment with the software
# NCCL, over the loopback. The test also needs the software NCCL to be built: add_dependencies(TARGET
# ncclsim).
function(nccl_environment out name)
  cudasim_environment(environment ${name} ${ARGN})
  list(FILTER environment EXCLUDE REGEX "^LD_LIBRARY_PATH=")
  set(${out} "LD_LIBRARY_PATH=${NCCLSIM_LIBRARY_DIR}:${CUDASIM_LIBRARY_DIR}" "NCCL_SOCKET_IFNAME=lo" ${environment}
      PARENT_SCOPE)
endfunction()
