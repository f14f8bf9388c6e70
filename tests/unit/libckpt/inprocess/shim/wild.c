/* SPDX-License-Identifier: Apache-2.0
 * The ways in which programs in the wild come by the driver (wild_test.py). None of them is linked with it;
 * each then asks for more memory than the shim's quota allows: 2 is the shim's answer, 0 the driver's.
 * Usage: wild name | path DRIVER | deepbind PLUGIN | namespace DRIVER | vfork | look */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

static int shim_is_mapped(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4096];
  int found = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    found |= strstr(line, "libckpt_shim") != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

#ifndef WITHOUT_LOADER
#define NAMED(name) ((__typeof__(&name))dlsym(driver, #name))

static int allocate(void* driver) {
  CUcontext context = NULL;
  CUdeviceptr memory = 0;
  if (driver == NULL || dlsym(driver, "cuInit") == NULL) {
    printf("no driver: %s\n", dlerror());
    return 1;
  }
  __typeof__(&cuMemAlloc) allocate_memory = (__typeof__(&cuMemAlloc))dlsym(driver, "cuMemAlloc_v2");
  printf("init %d", NAMED(cuInit)(0));
  printf(" retain %d", NAMED(cuDevicePrimaryCtxRetain)(&context, 0));
  printf(" set %d", NAMED(cuCtxSetCurrent)(context));
  printf(" allocate %d\n", allocate_memory(&memory, 16 << 20));
  fflush(stdout);
  return 0;
}

static int by_plugin(const char* path) {
  void* plugin = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
  int (*function)(void) = plugin != NULL ? (int (*)(void))dlsym(plugin, "allocate_by_plugin") : NULL;
  if (function == NULL) {
    printf("no plugin: %s\n", dlerror());
    return 1;
  }
  printf("allocate %d\n", function());
  return 0;
}

static int by_vfork(char* program) {
  int status = -1;
  const int failed = allocate(dlopen("libcuda.so.1", RTLD_NOW));
  char* arguments[] = {program, "name", NULL};
  const pid_t child = vfork();
  if (child == 0) {
    execv(program, arguments);
    _exit(127);
  }
  if (failed || waitpid(child, &status, 0) != child) return 1;
  printf("child %d\n", status);
  return 0;
}
#endif

int main(int count, char** arguments) {
  const char* life = count > 1 ? arguments[1] : "";
  if (strcmp(life, "look") == 0) {
    printf("secure %lu shim %d\n", getauxval(AT_SECURE), shim_is_mapped());
    return 0;
  }
#ifndef WITHOUT_LOADER
  if (strcmp(life, "name") == 0) return allocate(dlopen("libcuda.so.1", RTLD_NOW));
  if (strcmp(life, "vfork") == 0) return by_vfork(arguments[0]);
  if (count > 2 && strcmp(life, "path") == 0) return allocate(dlopen(arguments[2], RTLD_NOW));
  if (count > 2 && strcmp(life, "deepbind") == 0) return by_plugin(arguments[2]);
  if (count > 2 && strcmp(life, "namespace") == 0)
    return allocate(dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW));
#endif
  return 64;
}
