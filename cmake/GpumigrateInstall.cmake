# `cmake --install build [--prefix DIR]` (docs/site/install.md). Programs and libraries find each other by
# ../lib from their own folder, so they stay together in lib/gpumigrate. Programs that users call and
# libraries that they link have a link outside of this folder.
#   PREFIX/bin                  gpumigrate, gpumigrate-agent, gpumigrate-coordinator
#   PREFIX/lib, PREFIX/include  libckpt.so and ckpt.h
#   PREFIX/lib/gpumigrate       everything that runs; bin, lib
#   PREFIX/lib/systemd/system, PREFIX/share: units; man pages, completion, rules for Prometheus
# The software driver is the component `software-gpu`; everything else is the component `gpumigrate`.
set(home lib/gpumigrate)
set(programs gpumigrate gpumigrate-agent gpumigrate-coordinator gpumigrate-keeper gpumigrate-init gpumigrate-mover gpumigrate-context
    gpumigrate-health gpumigrate-lazy-pages gpumigrate-checkpoint-store ckpt-image)
list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE program_files)
install(PROGRAMS ${program_files} DESTINATION ${home}/bin COMPONENT gpumigrate)  # none needs a library of the tree to start
install(TARGETS ckpt ckpt_shim ckpt_criu_pages LIBRARY DESTINATION ${home}/lib COMPONENT gpumigrate)
install(DIRECTORY ${KERNEL_DIR} DESTINATION ${home}/lib COMPONENT gpumigrate)
install(DIRECTORY libckpt/include/ckpt DESTINATION include COMPONENT gpumigrate)
install(PROGRAMS $<TARGET_FILE:cudasim-device> $<TARGET_FILE:cudasim-ctl> DESTINATION ${home}/bin COMPONENT software-gpu)
install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/cudasim ${CMAKE_BINARY_DIR}/lib/ncclsim DESTINATION ${home}/lib
        USE_SOURCE_PERMISSIONS COMPONENT software-gpu)

install(FILES deploy/prometheus/gpumigrate.rules.yml deploy/prometheus/prometheus.yml deploy/grafana/gpumigrate.json
        DESTINATION share/gpumigrate COMPONENT gpumigrate)
install(FILES LICENSE DESTINATION share/doc/gpumigrate COMPONENT gpumigrate)

# Files that depend on the prefix, or that the program itself writes, are generated during the installation.
set(units gpumigrate-agent.service gpumigrate-coordinator.service)
set(linked_programs gpumigrate gpumigrate-agent gpumigrate-coordinator)
list(JOIN units " " units)
list(JOIN linked_programs " " linked_programs)
install(CODE "
  set(root \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  function(link target name)
    file(REMOVE \"\${root}/\${name}\")
    file(CREATE_LINK \"\${target}\" \"\${root}/\${name}\" SYMBOLIC)
    message(STATUS \"Installing: \${root}/\${name}\")
  endfunction()
  file(MAKE_DIRECTORY \"\${root}/bin\" \"\${root}/lib/systemd/system\" \"\${root}/share/bash-completion/completions\")
  foreach(program ${linked_programs})
    link(../${home}/bin/\${program} bin/\${program})
  endforeach()
  foreach(library libckpt.so libckpt.so.1)
    link(gpumigrate/lib/\${library} lib/\${library})
  endforeach()
  set(PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
  foreach(unit ${units})
    configure_file(\"${CMAKE_SOURCE_DIR}/deploy/systemd/\${unit}.in\" \"\${root}/lib/systemd/system/\${unit}\" @ONLY)
    message(STATUS \"Installing: \${root}/lib/systemd/system/\${unit}\")
  endforeach()
  execute_process(COMMAND \"\${root}/bin/gpumigrate\" __manual man \"\${root}/share/man/man1\" COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS \"Installing: \${root}/share/man/man1\")
  execute_process(COMMAND \"\${root}/bin/gpumigrate\" completion bash COMMAND_ERROR_IS_FATAL ANY
                  OUTPUT_FILE \"\${root}/share/bash-completion/completions/gpumigrate\")
" COMPONENT gpumigrate)
