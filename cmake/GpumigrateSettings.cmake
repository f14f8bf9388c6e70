# Compiler, warnings, output folders, ccache and the packages that every target may use.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# -g1 contains functions and lines, which a backtrace needs. It takes a tenth of the compile time or more;
# variables would take even more.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/ar)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_SOURCE_DIR}/cmake/cached-compiler ${CCACHE_PROGRAM} ${CMAKE_SOURCE_DIR})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# Sources of a target are compiled eight at a time. Headers and common templates (Asio, cereal, JSON) take
# most of a compilation's time, and are thus read and instantiated once for eight sources. A folder whose
# sources repeat each other's local names, and are quick to compile, sets UNITY_BUILD OFF. tools/check-tidy
# compiles each source alone, so that no source depends on its neighbors. With -DCMAKE_UNITY_BUILD=OFF, a
# change of one source compiles only that source.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile the sources of a target several at a time")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage> -Werror=return-type -fdiagnostics-color=auto)
# Garbage collection takes g++ a tenth of a large source's compile time. Without it, the largest sources need
# 1.6 GB instead of 1.4 GB.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=2000000>)
endif()
add_compile_definitions(_GNU_SOURCE GPUMIGRATE_VERSION="${PROJECT_VERSION}")

set(CUDA_HOME /usr/local/cuda CACHE PATH "A CUDA Toolkit >= 12.8: its headers, stub library and nvcc")
if(NOT EXISTS ${CUDA_HOME}/include/cuda.h)
  message(FATAL_ERROR "No CUDA Toolkit at ${CUDA_HOME}: install CUDA Toolkit 12.8 or newer, or pass -DCUDA_HOME=DIR")
endif()
find_program(NVCC_PROGRAM nvcc HINTS ${CUDA_HOME}/bin NO_DEFAULT_PATH)
add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE ${CUDA_HOME}/include)

find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)  # of Boost.URL; everything else of Boost is headers
find_package(Boost 1.81 REQUIRED COMPONENTS url)
if(GPUMIGRATE_TESTS)
  find_package(GTest REQUIRED)
endif()
find_package(PkgConfig REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
set(Protobuf_USE_STATIC_LIBS ON)  # CRIU's records (agent/host_process), in the agent alone
find_package(Protobuf REQUIRED)
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)

# control_plane(TARGET...): compiles the targets with -O1. Their code never runs once per chunk or page, so
# -O1 is enough; it compiles in a quarter less time than -O2 (docs/reports/build.md). The data path, the
# codec, tracking, the shim and the mover have -O2.
function(control_plane)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    set_target_properties(${target} PROPERTIES CONTROL_PLANE TRUE)
  endforeach()
endfunction()

# standard_headers(TARGET...): makes the targets use the precompiled standard library and Result
# (libckpt/CMakeLists.txt). Call it after control_plane, since a precompiled header has the optimization level
# of its users.
function(standard_headers)
  foreach(target ${ARGN})
    set(headers ckpt_headers)
    get_target_property(is_control_plane ${target} CONTROL_PLANE)
    if(is_control_plane)
      set(headers ckpt_control_headers)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endforeach()
endfunction()

# ckpt_sources(LIST FOLDER NAME...): appends FOLDER/NAME.cc for each name, so that a library of several
# folders lists each folder once.
macro(ckpt_sources list folder)
  foreach(name ${ARGN})
    list(APPEND ${list} ${folder}/${name}.cc)
  endforeach()
endmacro()

# ckpt_library(NAME SOURCES... DEPS...): adds a static library; headers are included from the tree's root.
function(ckpt_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${A_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${A_DEPS})
  endif()
endfunction()
