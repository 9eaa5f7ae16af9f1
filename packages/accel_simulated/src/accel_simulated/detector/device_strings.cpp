// Reports each device string that torch reads ("cuda:0"), by replacing the one function that reads them.
//
// libc10.so exports c10::Device's constructor of a string, and torch calls it through the dynamic linker. This
// library is loaded before torch, with RTLD_GLOBAL, so the linker finds its symbol of that name first. It needs no
// header of torch: the object is only passed on.

#include <dlfcn.h>

#include <exception>
#include <string>

namespace {

// Receives the text, and the error that reading it raised, or null.
using Callback = void (*)(const char*, const char*);

Callback callback = nullptr;
std::string recorded_types;  // ",cuda,xpu,"

bool is_recorded(const std::string& text) {
  return recorded_types.find("," + text.substr(0, text.find(':')) + ",") != std::string::npos;
}

}  // namespace

namespace c10 {

struct Device {
  explicit Device(const std::string& text);
};

Device::Device(const std::string& text) {
  using Constructor = void (*)(Device*, const std::string&);
  static const Constructor original = reinterpret_cast<Constructor>(
      dlsym(dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_"
                                                          "traitsIcESaIcEEE"));
  if (callback == nullptr || !is_recorded(text)) {
    original(this, text);
    return;
  }
  try {
    original(this, text);
  } catch (const std::exception& error) {
    callback(text.c_str(), error.what());
    throw;
  }
  callback(text.c_str(), nullptr);
}

}  // namespace c10

// Call `new_callback` for strings of these types, such as ",cuda,xpu,"; null ends that.
extern "C" void watch(Callback new_callback, const char* types) {
  callback = nullptr;
  recorded_types = types;
  callback = new_callback;
}
