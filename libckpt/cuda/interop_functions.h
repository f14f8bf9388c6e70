// SPDX-License-Identifier: Apache-2.0
// The functions of interop_functions.def, declared for passing calls on. NVIDIA's headers for these functions
// need the headers of OpenGL, EGL and VDPAU, which the shim does not need. Their types are defined here as in
// the ABI. Do not include this file together with NVIDIA's. Errors: CUresult.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstdint>

namespace ckpt::interop {

using GlName = unsigned int;        // represents GLuint, GLenum
using GlDeviceList = unsigned int;  // represents CUGLDeviceList
using EglObject = void*;            // represents EGLImageKHR, EGLStreamKHR, EGLSyncKHR
using EglConnection = void*;        // represents CUeglStreamConnection
using VdpObject = std::uint32_t;    // represents VdpDevice, VdpVideoSurface, VdpOutputSurface
using Address32 = unsigned int;     // represents the CUdeviceptr of the functions before _v2

struct EglFrame {  // represents CUeglFrame, with its size and alignment, so that it is passed by value in the
                   // same way
  std::uint64_t planes[3];
  std::uint32_t rest[9];
};
static_assert(sizeof(EglFrame) == 64);

}  // namespace ckpt::interop

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names.
extern "C" {
CUresult cuProfilerInitialize(const char* config, const char* output, int mode);
CUresult cuProfilerStart();
CUresult cuProfilerStop();

CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource* resource, ckpt::interop::GlName buffer,
                                    unsigned int flags);
CUresult cuGraphicsGLRegisterImage(CUgraphicsResource* resource, ckpt::interop::GlName image,
                                   ckpt::interop::GlName target, unsigned int flags);
CUresult cuGLGetDevices(unsigned int* count, CUdevice* devices, unsigned int room,
                        ckpt::interop::GlDeviceList list);
CUresult cuGLGetDevices_v2(unsigned int* count, CUdevice* devices, unsigned int room,
                           ckpt::interop::GlDeviceList list);
CUresult cuGLCtxCreate(CUcontext* context, unsigned int flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);
CUresult cuGLInit();
CUresult cuGLRegisterBufferObject(ckpt::interop::GlName buffer);
CUresult cuGLMapBufferObject(ckpt::interop::Address32* address, unsigned int* size,
                             ckpt::interop::GlName buffer);
CUresult cuGLMapBufferObject_v2(CUdeviceptr* address, size_t* size, ckpt::interop::GlName buffer);
CUresult cuGLMapBufferObject_v2_ptds(CUdeviceptr* address, size_t* size, ckpt::interop::GlName buffer);
CUresult cuGLUnmapBufferObject(ckpt::interop::GlName buffer);
CUresult cuGLUnregisterBufferObject(ckpt::interop::GlName buffer);
CUresult cuGLSetBufferObjectMapFlags(ckpt::interop::GlName buffer, unsigned int flags);
CUresult cuGLMapBufferObjectAsync(ckpt::interop::Address32* address, unsigned int* size,
                                  ckpt::interop::GlName buffer, CUstream stream);
CUresult cuGLMapBufferObjectAsync_v2(CUdeviceptr* address, size_t* size, ckpt::interop::GlName buffer,
                                     CUstream stream);
CUresult cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr* address, size_t* size, ckpt::interop::GlName buffer,
                                          CUstream stream);
CUresult cuGLUnmapBufferObjectAsync(ckpt::interop::GlName buffer, CUstream stream);

CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource* resource, ckpt::interop::EglObject image,
                                    unsigned int flags);
CUresult cuEGLStreamConsumerConnect(ckpt::interop::EglConnection* connection,
                                    ckpt::interop::EglObject stream);
CUresult cuEGLStreamConsumerConnectWithFlags(ckpt::interop::EglConnection* connection,
                                             ckpt::interop::EglObject stream, unsigned int flags);
CUresult cuEGLStreamConsumerDisconnect(ckpt::interop::EglConnection* connection);
CUresult cuEGLStreamConsumerAcquireFrame(ckpt::interop::EglConnection* connection,
                                         CUgraphicsResource* resource, CUstream* stream,
                                         unsigned int timeout);
CUresult cuEGLStreamConsumerReleaseFrame(ckpt::interop::EglConnection* connection,
                                         CUgraphicsResource resource, CUstream* stream);
CUresult cuEGLStreamProducerConnect(ckpt::interop::EglConnection* connection, ckpt::interop::EglObject stream,
                                    std::int32_t width, std::int32_t height);
CUresult cuEGLStreamProducerDisconnect(ckpt::interop::EglConnection* connection);
CUresult cuEGLStreamProducerPresentFrame(ckpt::interop::EglConnection* connection,
                                         ckpt::interop::EglFrame frame, CUstream* stream);
CUresult cuEGLStreamProducerReturnFrame(ckpt::interop::EglConnection* connection,
                                        ckpt::interop::EglFrame* frame, CUstream* stream);
CUresult cuGraphicsResourceGetMappedEglFrame(ckpt::interop::EglFrame* frame, CUgraphicsResource resource,
                                             unsigned int index, unsigned int level);
CUresult cuEventCreateFromEGLSync(CUevent* event, ckpt::interop::EglObject sync, unsigned int flags);

CUresult cuVDPAUGetDevice(CUdevice* device, ckpt::interop::VdpObject vdp_device, void* get_address);
CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned int flags, CUdevice device,
                          ckpt::interop::VdpObject vdp_device, void* get_address);
CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device,
                             ckpt::interop::VdpObject vdp_device, void* get_address);
CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource* resource, ckpt::interop::VdpObject surface,
                                             unsigned int flags);
CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource* resource, ckpt::interop::VdpObject surface,
                                              unsigned int flags);
}
// NOLINTEND(readability-identifier-naming)
