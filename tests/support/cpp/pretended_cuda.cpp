// A CUDA device that has shapes and no numbers: what torch asks of one, with nothing behind it. Loaded before torch
// (LD_PRELOAD), it lets fake tensors say that they lie on CUDA where torch was built without it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {

static const Device ONLY(DeviceType::CUDA, 0);

struct Guard final : DeviceGuardImplInterface {
    static constexpr DeviceType static_type = DeviceType::CUDA;
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device) const override { return ONLY; }
    Device getDevice() const override { return ONLY; }
    void setDevice(Device) const override {}
    void uncheckedSetDevice(Device) const noexcept override {}
    Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, ONLY); }
    Stream exchangeStream(Stream stream) const noexcept override { return stream; }
    DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace c10::impl

namespace at {

struct Hooks final : CUDAHooksInterface {
    explicit Hooks(CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return 1; }
    DeviceIndex getCurrentDevice() const override { return 0; }
    DeviceIndex current_device() const override { return 0; }
    void setCurrentDevice(DeviceIndex) const override {}
    DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
    DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
    int getNumGPUs() const override { return 1; }
    const Generator& getDefaultGenerator(DeviceIndex) const override {
        static Generator generator = detail::createCPUGenerator();
        return generator;
    }
};

C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)

}  // namespace at
