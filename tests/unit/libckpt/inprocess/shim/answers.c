/* SPDX-License-Identifier: Apache-2.0
 * Asks the driver that this process has for every name of a list, by dlsym and by cuGetProcAddress, and
 * writes down each answer without its address. Run with and without the shim the lines must be the same
 * (answers_test.py). The lines: dlsym NAME found|TEXT OF dlerror; address NAME VERSION FLAGS result status
 * found|null; call NAME result.
 * Usage: answers NAMES DRIVER [SHIM]   (DRIVER: the library's file; SHIM: its file, which must then be the
 * source of each function of the list that is found) */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult (*Init)(unsigned);
typedef CUresult (*Address1)(const char*, void**, int, cuuint64_t);
typedef CUresult (*Address2)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

static const char* shim;
static int wrong;

/* The file that a function comes from. */
static const char* file_of(void* function) {
  Dl_info info;
  return dladdr(function, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "?";
}

/* A function of the table must be the shim's, any other the driver's. */
static void check_source(const char* how, const char* name, void* function, int in_table) {
  if (shim == NULL || (strcmp(file_of(function), shim) == 0) == (in_table != 0)) return;
  fprintf(stderr, "%s %s: is a function of %s\n", how, name, file_of(function));
  wrong = 1;
}

static void look_up(void* library, const char* way, const char* name, int in_table) {
  dlerror();
  void* function = dlsym(library, name);
  const char* error = dlerror();
  if (function != NULL) check_source("dlsym", name, function, in_table);
  const char* words = error == NULL ? "" : strstr(error, ": ");
  printf("dlsym %s %s %s%s\n", way, name, function != NULL ? "found" : "null", words == NULL ? "" : words);
}

static void ask(Address1 v1, Address2 v2, const char* name, int in_table) {
  static const int versions[] = {4000, 7000, 10000, 11000, 11040, 12000, 12020, 12080, 13000, 99000};
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    for (cuuint64_t flags = 0; flags < 4; flags++) {
      void* function = NULL;
      CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
      if (v2 != NULL) {
        const CUresult result = v2(name, &function, versions[i], flags, &status);
        if (function != NULL) check_source("cuGetProcAddress_v2", name, function, in_table);
        printf("address2 %s %d %d %d %d %s\n", name, versions[i], (int)flags, result, status,
               function ? "found" : "null");
      }
      if (v1 != NULL) {
        function = NULL;
        const CUresult result = v1(name, &function, versions[i], flags);
        if (function != NULL) check_source("cuGetProcAddress", name, function, in_table);
        printf("address1 %s %d %d %d %s\n", name, versions[i], (int)flags, result,
               function ? "found" : "null");
      }
    }
  }
}

int main(int count, char** arguments) {
  if (count < 3) return 64;
  shim = count > 3 ? arguments[3] : NULL;
  void* by_name = dlopen("libcuda.so.1", RTLD_NOW);
  void* by_path = dlopen(arguments[2], RTLD_NOW);
  FILE* names = fopen(arguments[1], "r");
  if (by_name == NULL || by_path == NULL || names == NULL) return 66;
  if (shim != NULL && strcmp(file_of(dlsym(by_name, "cuInit")), shim) != 0) return 70;
  Init init = (Init)dlsym(by_name, "cuInit");
  printf("cuInit %d\n", init(0));
  Address1 v1 = (Address1)dlsym(by_name, "cuGetProcAddress");
  Address2 v2 = (Address2)dlsym(by_name, "cuGetProcAddress_v2");
  char name[256];
  int in_table = 0;
  while (fscanf(names, "%255s %d", name, &in_table) ==
         2) { /* in_table: 0 no, 1 yes, 2 a name without its version */
    if (in_table != 2) {
      look_up(by_name, "name", name, in_table);
      look_up(by_path, "path", name, in_table);
    }
    if (in_table != 1) ask(v1, v2, name, in_table == 2);
  }
  return wrong;
}
