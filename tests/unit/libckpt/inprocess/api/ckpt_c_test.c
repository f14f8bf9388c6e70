/* SPDX-License-Identifier: Apache-2.0
 * ckpt.h as a C program sees it, outside gpumigrate and without a driver. */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void check(int condition, const char* what) {
  if (!condition) {
    fprintf(stderr, "failed: %s (%s)\n", what, ckpt_last_error());
    ++failures;
  }
}

static ckpt_status save(void* user, ckpt_writer* writer) {
  return ckpt_write(writer, user, 4);
}
static ckpt_status load(void* user, const void* data, size_t bytes) {
  if (bytes != 4) return CKPT_ERROR_MISMATCH;
  memcpy(user, data, bytes);
  return CKPT_OK;
}

static void check_arguments(ckpt_session* session) {
  const uint64_t shape[2] = {4, 8};
  uint64_t step = 0;
  char long_name[CKPT_MAX_NAME + 2];
  memset(long_name, 'n', sizeof long_name);
  long_name[CKPT_MAX_NAME + 1] = '\0';
  check(ckpt_tensor(session, "t", 4096, 1, CKPT_F32, 2, shape, CKPT_PARAMETER) == CKPT_ERROR_INVALID,
        "size and shape differ");
  check(strstr(ckpt_last_error(), "128 bytes") != NULL, "the error says the size that would fit");
  check(ckpt_tensor(session, "t", 4096, 128, (ckpt_dtype)99, 2, shape, CKPT_PARAMETER) == CKPT_ERROR_INVALID,
        "no such dtype");
  check(ckpt_tensor(session, "t", 4096, 128, CKPT_F32, 2, shape, (ckpt_kind)9) == CKPT_ERROR_INVALID,
        "no such kind");
  check(ckpt_tensor(session, "t", 4096, 128, CKPT_F32, 9, shape, CKPT_PARAMETER) == CKPT_ERROR_INVALID,
        "nine dimensions");
  check(ckpt_tensor(session, "", 4096, 128, CKPT_F32, 2, shape, CKPT_PARAMETER) == CKPT_ERROR_INVALID,
        "empty name");
  check(ckpt_host_state(session, long_name, &step, sizeof step) == CKPT_ERROR_INVALID, "name too long");
  check(ckpt_host_state(session, "a\nb", &step, sizeof step) == CKPT_ERROR_INVALID,
        "control character in a name");
  check(ckpt_host_state(session, "step", NULL, 8) == CKPT_ERROR_INVALID, "no pointer");
  check(ckpt_host_state(session, "step", &step, sizeof step) == CKPT_OK, "host state");
  check(ckpt_host_state(session, "step", &step, sizeof step) == CKPT_ERROR_INVALID, "the same name twice");
  check(ckpt_tensor(session, "t", 4096, 128, CKPT_F32, 2, shape, CKPT_PARAMETER) != CKPT_OK,
        "tensor without a context");
  check(ckpt_last_error()[0] != '\0', "an error has a text");
  check(ckpt_drop(session, "unknown") == CKPT_ERROR_INVALID, "drop of an unknown name");
  check(ckpt_alloc(session, 0, NULL) == CKPT_ERROR_INVALID, "allocation of nothing");
  check(ckpt_free(session, 4096) == CKPT_ERROR_INVALID, "free of a foreign pointer");
}

int main(void) {
  ckpt_session* session = NULL;
  ckpt_session* second = NULL;
  ckpt_role role = CKPT_ROLE_STANDBY;
  ckpt_start start = CKPT_RESUMED;
  ckpt_options wrong = {CKPT_ABI_VERSION + 1, 0};
  ckpt_options flags = {CKPT_ABI_VERSION, 1u << 30};
  char user[4] = "abc";
  int i;

  check(ckpt_abi_version() == CKPT_ABI_VERSION, "ABI version");
  check(ckpt_init(NULL, NULL, NULL) == CKPT_ERROR_INVALID, "no place for the session");
  check(ckpt_init(&wrong, &session, &role) == CKPT_ERROR_INVALID, "newer ABI");
  check(ckpt_init(&flags, &session, &role) == CKPT_ERROR_INVALID, "unknown flag");
  check(ckpt_barrier(NULL) == CKPT_ERROR_INVALID, "barrier without a session");
  setenv("CKPT_SOCKET", "/nowhere/keeper.sock", 1);
  check(ckpt_init(NULL, &session, &role) == CKPT_ERROR_CONNECTION, "no keeper there");
  unsetenv("CKPT_SOCKET");
  check(ckpt_init(NULL, &session, &role) == CKPT_OK, "init");
  check(role == CKPT_ROLE_FRESH, "fresh outside gpumigrate");
  check(ckpt_init(NULL, &second, NULL) == CKPT_ERROR_INVALID, "second session");
  check_arguments(session);
  check(ckpt_host_callbacks(session, "callbacks", save, load, user) == CKPT_OK, "callbacks");
  check(ckpt_ready(session, &start) == CKPT_OK, "ready");
  check(start == CKPT_FRESH, "starts fresh");
  check(ckpt_ready(session, &start) == CKPT_ERROR_INVALID, "ready twice");
  for (i = 0; i < 1000; ++i) check(ckpt_barrier(session) == CKPT_OK, "barrier");
  check(ckpt_shutdown(session) == CKPT_OK, "shutdown");
  check(ckpt_init(NULL, &session, NULL) == CKPT_OK, "a new session after the first");
  check(ckpt_shutdown(session) == CKPT_OK, "shutdown again");
  return failures == 0 ? 0 : 1;
}
