# Device code that runs on both drivers. One source NAME.cu is compiled by nvcc to a fat binary and by g++ to
# a module of the software driver. Both images are written to build/lib/kernels. Programs try one image after
# the other until the driver accepts an image (libckpt/cuda/module.h). So no program knows which driver it
# runs on.
set(KERNEL_DIR ${CMAKE_BINARY_DIR}/lib/kernels)
file(MAKE_DIRECTORY ${KERNEL_DIR})

# device_module(NAME SOURCE file.cu [INCLUDES dir...] [HOST_FLAGS flag...]): builds one source for both
# drivers.
function(device_module name)
  cmake_parse_arguments(A "" "SOURCE" "INCLUDES;HOST_FLAGS" ${ARGN})
  get_filename_component(source ${A_SOURCE} ABSOLUTE)
  add_library(${name}_sim MODULE ${source})
  unsanitized_target(${name}_sim)  # it runs in the driver's process
  set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
  # A module that is loaded twice must be two modules. By default the loader gives all copies one set of
  # inline functions' variables. Then other copies call a pointer to a function of one copy even after that
  # copy has been unloaded.
  target_compile_options(${name}_sim PRIVATE -x c++ -O3 -fno-gnu-unique ${A_HOST_FLAGS})
  target_include_directories(${name}_sim PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tools
                             ${CMAKE_SOURCE_DIR}/tests/simulators/cudasim/include ${A_INCLUDES})
  set_target_properties(${name}_sim PROPERTIES PREFIX "" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${KERNEL_DIR})
  add_custom_target(${name} ALL DEPENDS ${name}_sim)
  if(NVCC_PROGRAM AND NOT GPUMIGRATE_SANITIZE)
    set(include_flags -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/tools -I${CMAKE_SOURCE_DIR}/tests/simulators/cudasim/include)
    foreach(dir ${A_INCLUDES})
      list(APPEND include_flags -I${dir})
    endforeach()
    add_custom_command(
      OUTPUT ${KERNEL_DIR}/${name}.fatbin
      COMMAND ${NVCC_PROGRAM} -std=c++17 -O3 --fatbin -Wno-deprecated-gpu-targets
              -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
              -gencode arch=compute_90,code=compute_90 ${include_flags}
              -MD -MF ${CMAKE_CURRENT_BINARY_DIR}/${name}.d -o ${KERNEL_DIR}/${name}.fatbin ${source}
      DEPENDS ${source}
      DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/${name}.d
      COMMENT "nvcc ${name}.fatbin"
      VERBATIM)
    add_custom_target(${name}_fatbin DEPENDS ${KERNEL_DIR}/${name}.fatbin)
    add_dependencies(${name} ${name}_fatbin)
  endif()
endfunction()
