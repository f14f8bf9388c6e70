/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into CRIU while it dumps: pages of mappings that are watched for writes (memory_watch.h) are left out of
 * what CRIU finds. The agent has most of them already and reads the rest itself (early_pages.h). CRIU would
 * pin each page and move it through a pipe, 0.1 s for 1 GiB, to have it thrown away.
 * CRIU asks the kernel with PAGEMAP_SCAN (Linux 6.7; Documentation/admin-guide/mm/pagemap.rst). The question gets one
 * more condition: the mapping is not registered for asynchronous write protection. The kernel then passes
 * over such a mapping without a look at its pages. Nothing else changes, and where CRIU asks in another way, it
 * dumps all pages as ever.
 * Threads: any. Errors: those of ioctl(2).
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct pm_scan_arg of linux/fs.h; headers may be older. */
struct scan_order {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_ORDER _IOWR('f', 16, struct scan_order)
#define PAGE_OF_WATCHED_MAPPING 1u /* PAGE_IS_WPALLOWED */

__attribute__((visibility("default"))) int ioctl(int file, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (request != PAGEMAP_SCAN_ORDER) return (int)syscall(SYS_ioctl, file, request, argument);
  struct scan_order* asked = argument;
  struct scan_order order = *asked;
  order.category_inverted |= PAGE_OF_WATCHED_MAPPING;
  order.category_mask |= PAGE_OF_WATCHED_MAPPING;
  const int found = (int)syscall(SYS_ioctl, file, request, &order);
  asked->walk_end = order.walk_end;
  return found;
}
