/* SPDX-License-Identifier: Apache-2.0
 * A program linked with -lcuda, in several lives; each prints what it saw (processes_test.py compares them
 * with and without the shim). Usage: program idle|call|fork|exec|next */
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int entries(const char* path) {
  DIR* folder = opendir(path);
  int count = 0;
  while (folder != NULL && readdir(folder) != NULL) count++;
  if (folder != NULL) closedir(folder);
  return count;
}

/* A mapped file of the driver, the shim's own file aside. */
static int driver_is_mapped(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4096];
  int found = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, "/libcuda.so") != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

static void use(const char* who) {
  int count = -1;
  CUcontext context = NULL;
  CUdeviceptr memory = 0;
  unsigned word = 0;
  printf("%s count %d", who, cuDeviceGetCount(&count));
  printf(" of %d", count);
  printf(" retain %d", cuDevicePrimaryCtxRetain(&context, 0));
  printf(" set %d", cuCtxSetCurrent(context));
  printf(" alloc %d", cuMemAlloc(&memory, 4096));
  printf(" memset %d", cuMemsetD32(memory, 0x12345678, 1024));
  printf(" copy %d", cuMemcpyDtoH(&word, memory, 4));
  printf(" synchronize %d word %x\n", cuCtxSynchronize(), word);
  fflush(stdout);
}

int main(int count, char** arguments) {
  const char* life = count > 1 ? arguments[1] : "";
  if (strcmp(life, "idle") == 0) {
    /* Under the shim the driver's file must not be mapped; alone it is, being linked. */
    const int mapped = driver_is_mapped();
    printf("threads %d descriptors %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
    return getenv("LD_PRELOAD") != NULL && mapped ? 1 : 0;
  }
  if (strcmp(life, "next") == 0) { /* RTLD_NEXT goes by who asks */
    void* next = dlsym(RTLD_NEXT, "cuDriverGetVersion");
    void* plain = dlsym(RTLD_DEFAULT, "getpid");
    printf("next %d getpid %d\n", next != NULL, plain != NULL && ((pid_t(*)(void))plain)() == getpid());
    return 0;
  }
  printf("init %d\n", cuInit(0));
  fflush(stdout);
  if (strcmp(life, "call") == 0) {
    use("self");
    CUprocessState state;
    printf("state of nobody %d\n", cuCheckpointProcessGetState(-1, &state));
  } else if (strcmp(life, "exec") == 0) {
    use("before");
    execl(arguments[0], arguments[0], "call", (char*)NULL);
    return 1;
  } else if (strcmp(life, "fork") == 0) {
    use("parent");
    const pid_t child = fork();
    if (child == 0) {
      use("child");
      printf("init in child %d\n", cuInit(0));
      fflush(stdout);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("child ended %d\n", status);
    use("parent");
  }
  return 0;
}
